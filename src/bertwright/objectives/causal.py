"""Causal language modelling: which piece comes next? (Radford et al. 2018)."""

from typing import ClassVar, Literal

import torch
from torch import nn

from bertwright.encoder.visibility import BothWays, Reversed, Visibility
from bertwright.encoder.visibility import Causal as CausalRule
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, both_neighbours, next_pieces, previous_pieces

from .objective import Asked, Asking, Loss, Objective, Reading

RULES: dict[str, Visibility] = {
    "forward": CausalRule(),
    "backward": Reversed(),
    "both": BothWays(),
}


class Causal(Objective):
    """Ask every place for the piece after it.

    ``targets`` asks only that many places of each row (drawn anew each epoch): cheaper steps where
    the vocabulary is large. None asks all of them. ``direction`` backward asks for the piece before
    a place instead, which sees what stands behind it; both asks for the one by the first half of a
    state, for the other by the second (Peters et al. 2018): the mean of two language models.
    """

    kind: Literal["causal"] = "causal"
    targets: int | None = None
    direction: Literal["forward", "backward", "both"] = "forward"

    names_pieces: ClassVar[bool] = True

    @property
    def visibility(self) -> Visibility:
        return RULES[self.direction]

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        ask = {"forward": next_pieces, "backward": previous_pieces, "both": both_neighbours}
        return rows, ask[self.direction](rows, self.targets, asking.draw.named("causal"))

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        if self.direction != "both":
            return reading.piece_loss(asked)
        first, second = reading.at(asked.where).chunk(2, dim=1)
        behind = asked.beside["behind"][:, None] == 1
        return reading.named(torch.where(behind, first, second), asked)
