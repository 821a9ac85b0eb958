"""Which layer of a teacher each layer of a student is held against."""

import re
from typing import Literal

from pydantic import field_validator

from bertwright.axes import Settings
from bertwright.errors import UserError

Rule = Literal["uniform", "last", "first"]

WHICH = {"all": slice(None), "but-last": slice(-1), "last": slice(-1, None)}

_PAIR = re.compile(r"(\d+)-(\d+)")


class LayerMap(Settings):
    """Pairs of a layer of the student and one of the teacher, where layer 0 is the embeddings and
    layer k what block k gives.

    ``uniform`` sets layer m of N beside mL/N of L, ``last`` the layers of the student beside the
    last ones of the teacher, ``first`` beside the first; or ``pairs`` are named, ``1-4 2-8``.
    ``which`` of them count: all, all but the last (Sun et al. 2019), or the last alone (Sanh et al.
    2019). That of the ``embeddings`` can be added (Jiao et al. 2020).
    """

    rule: Rule = "uniform"
    pairs: str | None = None
    which: Literal["all", "but-last", "last"] = "all"
    embeddings: bool = False

    @field_validator("pairs")
    @classmethod
    def _are_pairs(cls, pairs: str | None) -> str | None:
        if pairs is not None and not all(_PAIR.fullmatch(pair) for pair in pairs.split()):
            raise ValueError(f"{pairs!r} are no pairs of layers: write such as 1-4 2-8")
        return pairs

    def between(self, student: int, teacher: int) -> list[tuple[int, int]]:
        """The pairs for a student and a teacher of so many layers.

        Errors: UserError for a layer that is not there, and where no pair is left.
        """
        if self.pairs is not None:
            found = [(int(a), int(b)) for a, b in _PAIR.findall(self.pairs)]
        else:
            found = [(m, self._partner(m, student, teacher)) for m in range(1, student + 1)]
            found = found[WHICH[self.which]]
            found = [(0, 0), *found] if self.embeddings else found
        for own, other in found:
            if own > student or not 0 <= other <= teacher:
                raise UserError(
                    f"no layers {own} and {other}: the student has {student}, the teacher {teacher}"
                )
        if not found:
            raise UserError(
                f"no pair of layers is left of a student with {student}: take more --layers, or a "
                f"method that compares others (docs/compression.md)"
            )
        return found

    def _partner(self, layer: int, student: int, teacher: int) -> int:
        if self.rule == "uniform":
            return round(layer * teacher / student)
        return layer if self.rule == "first" else teacher - student + layer
