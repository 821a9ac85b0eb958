"""Causal language modelling: which piece comes next? (Radford et al. 2018)."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.encoder.visibility import BothWays, Reversed, Visibility
from bertwright.encoder.visibility import Causal as CausalRule
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import (
    Question,
    ask_pieces,
    both_neighbours,
    next_pieces,
    previous_pieces,
)
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary

from .objective import Asked, Asking, Objective, Reading

RULES: dict[str, Visibility] = {
    "forward": CausalRule(),
    "backward": Reversed(),
    "both": BothWays(),
}


class Causal(Objective):
    """Ask every place for the piece after it.

    ``direction`` backward asks for the piece before a place instead, which sees what stands behind
    it; both asks for the one by the first half of a state, for the other by the second (Peters et
    al. 2018): the mean of two language models.
    """

    kind: Literal["causal"] = "causal"
    direction: Literal["forward", "backward", "both"] = "forward"

    names_pieces: ClassVar[bool] = True

    @property
    def visibility(self) -> Visibility:
        return RULES[self.direction]

    def per_place(self, length: int) -> float:
        return 2.0 if self.direction == "both" else 1.0

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        ask = {"forward": next_pieces, "backward": previous_pieces, "both": both_neighbours}
        return rows, ask[self.direction](rows)

    def ask_for(
        self, chosen: Chosen, hidden: NDArray[np.bool_], rows: Rows, vocabulary: Vocabulary
    ) -> tuple[Rows, Question] | None:
        """By what stands before them; of a model that reads only backwards, nothing."""
        if self.direction == "backward":
            return None
        before = np.maximum(chosen.where - 1, 0)
        question = ask_pieces(rows, before, chosen.weight, shift=1)
        if self.direction == "both":
            behind = np.ones(len(question.where), np.int64)
            question = replace(question, beside={"behind": behind})
        return rows, question

    def states(self, asked: Asked, reading: Reading) -> Tensor:
        found = reading.at(asked.where)
        if self.direction != "both":
            return found
        first, second = found.chunk(2, dim=1)
        return torch.where(asked.beside["behind"][:, None] == 1, first, second)
