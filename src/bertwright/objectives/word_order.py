"""Word order: what stood here before the pieces were shuffled? (Wang et al. 2019, section 2.1)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.examples.shuffling import shuffle_runs

from .objective import Asking, Objective


class WordOrder(Objective):
    """Permute runs of ``size`` pieces that cover at most ``rate`` of the text, and ask for the
    original piece at each of their places.

    What another question has asked about before is left alone. The paper does not settle whether
    its 5 % counts runs or pieces, nor whether a run may keep its order: here it counts pieces, and
    none does.
    """

    kind: Literal["word-order"] = "word-order"
    size: int = Field(default=3, ge=2, le=64)
    rate: float = Field(default=0.05, gt=0.0, lt=1.0)

    names_pieces: ClassVar[bool] = True
    hides: ClassVar[bool] = True
    disturbs: ClassVar[bool] = True

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        hiding = [name for name, objective in behind.items() if objective.hides]
        return f"leaves alone what {hiding[0]!r} hides: list it behind" if hiding else None

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        kept = np.zeros(rows.pieces.shape, np.bool_)
        for question in asking.before.values():
            kept.ravel()[question.where[question.weight > 0]] = True
        draw = asking.draw.named("word-order")
        return shuffle_runs(rows, kept, self.size, self.rate, draw)
