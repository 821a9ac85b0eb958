"""Causal language modelling: which piece comes next? (Radford et al. 2018)."""

from typing import ClassVar, Literal

from torch import nn

from bertwright.encoder.visibility import Causal as CausalRule
from bertwright.encoder.visibility import Visibility
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, next_pieces

from .objective import Asked, Asking, Loss, Objective, Reading


class Causal(Objective):
    """Ask every place for the piece after it.

    ``targets`` asks only that many places of each row (drawn anew each epoch): cheaper steps where
    the vocabulary is large. None asks all of them.
    """

    kind: Literal["causal"] = "causal"
    targets: int | None = None

    visibility: ClassVar[Visibility] = CausalRule()
    names_pieces: ClassVar[bool] = True

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, next_pieces(rows, self.targets, asking.draw.named("causal"))

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return reading.piece_loss(asked)
