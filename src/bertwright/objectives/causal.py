"""Causal language modelling: which piece comes next? (Radford et al. 2018)."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.encoder.visibility import Causal as CausalRule
from bertwright.encoder.visibility import Visibility
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, next_pieces
from bertwright.randomness import key

from .objective import Asked, Asking, Loss, Objective, named_piece_loss
from .output import Output


class Causal(Objective):
    """Ask every place for the piece after it.

    ``targets`` asks only that many places of each row (drawn anew each epoch): cheaper steps where
    the vocabulary is large. None asks all of them.
    """

    kind: Literal["causal"] = "causal"
    targets: int | None = None

    visibility: ClassVar[Visibility] = CausalRule()
    names_pieces: ClassVar[bool] = True

    def ask(self, rows: Rows, asking: Asking) -> tuple[NDArray[np.int32], Question]:
        question = next_pieces(
            rows, self.targets, key(asking.seed, "causal"), asking.epoch, asking.index
        )
        return rows.pieces, question

    def answer(
        self,
        states: Tensor,
        asked: Asked,
        output: Output | None,
        embedding: Tensor,
        head: nn.Module | None,
    ) -> Loss:
        return named_piece_loss(states, asked, output, embedding)
