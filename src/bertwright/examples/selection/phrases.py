"""Phrases and named entities, whole (Sun et al. 2019, section 3.2)."""

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.selection.words import WholeWords


class Phrases(WholeWords):
    """All of a phrase or nothing of it; what is of no phrase goes word by word.

    Phrases and words are taken in random order, one as likely as the other, while they fit in the
    budget, which counts tokens: one that would exceed what is left is skipped. Where that leaves
    more than a tenth of the budget, whole words of the skipped phrases fill it, then single tokens.
    Of a phrase that is cut by the end of a sequence the part that is there counts as one.
    """

    kind: Literal["phrases"] = "phrases"  # type: ignore[assignment]

    needs: ClassVar[frozenset[Need]] = frozenset({"phrases"})

    def _known(self, rows: Rows) -> NDArray[np.int32] | None:
        return rows.coordinates.phrase

    def _levels(self, rows: Rows) -> list[NDArray[Any]]:
        known, [word] = self._known(rows), super()._levels(rows)
        if known is None:
            raise UserError(
                f"selection {self.kind} needs text in which they are annotated: prepare it with "
                f"--annotations COLUMN, --phrases FILE or --tagger PIPELINE"
            )
        inside = known >= 0
        begins = np.ones(word.shape, np.bool_)
        begins[:, 1:] = (known[:, 1:] != known[:, :-1]) | (
            ~inside[:, 1:] & (word[:, 1:] != word[:, :-1])
        )
        begins[:, 1:] |= rows.special[:, :-1]
        text = word >= 0
        number = np.cumsum(begins & text, axis=1, dtype=np.int32) - 1
        return [np.where(text, number, np.int32(-1)), word]


class Entities(Phrases):
    """The same of named entities: people, places and the like."""

    kind: Literal["entities"] = "entities"  # type: ignore[assignment]

    def _known(self, rows: Rows) -> NDArray[np.int32] | None:
        return rows.coordinates.entity
