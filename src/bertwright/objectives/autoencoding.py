"""Sequence autoencoding: can a text be told again from the state at its end? (Dai and Le 2015)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from bertwright.encoder.visibility import Causal as CausalRule
from bertwright.encoder.visibility import Visibility
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.examples.repeating import repeat

from .objective import Asking, Objective


class Autoencoding(Objective):
    """Read the first text of a row, as much as half a row holds, then tell it again piece by piece,
    each after those before it. ``backwards`` reads it from its end.

    It says something of encoders that carry the text over in one state; attention copies it.
    """

    kind: Literal["autoencoding"] = "autoencoding"
    backwards: bool = False

    names_pieces: ClassVar[bool] = True

    @property
    def rearranges(self) -> bool:
        return True

    @property
    def visibility(self) -> Visibility:
        return CausalRule()

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        others = [*before, *behind]
        if not others:
            return None
        return f"tells rows of its own, on which {others[0]!r} cannot be asked: ask it alone"

    def per_place(self, length: int) -> float:
        return (length // 2 - 1) / length

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return repeat(rows, self.backwards, asking.vocabulary)
