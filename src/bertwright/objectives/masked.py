"""Masked language modelling: which pieces were here? (Devlin et al. 2019, section 3.1)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, ask_pieces
from bertwright.examples.selection import Chosen
from bertwright.examples.vocabulary import Vocabulary

from .hiding import Hiding
from .objective import Asked, Asking, Objective, Reading


class Masked(Hiding):
    """Hide pieces and ask for them.

    ``shift`` is the distance from the state that answers to the place that is asked: 0 reads the
    answer at the place itself, as every stock class does; 1 reads it one place before, so that a
    causal and a masked phase train the same road (Charpentier and Samuel 2024).
    Relations: ``causal`` asks for every next piece instead and hides nothing.
    """

    kind: Literal["masked"] = "masked"
    shift: Literal[0, 1] = 0

    names_pieces: ClassVar[bool] = True

    def per_place(self, length: int) -> float:
        return self.selection.rate.at(0.5)

    def read_places(self, length: int, together: Mapping[str, Objective]) -> float:
        return self.per_place(length)

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        shown, question = super().ask(rows, asking)
        return shown, self._with_a_state(question, rows)

    def ask_for(
        self, chosen: Chosen, hidden: NDArray[np.bool_], rows: Rows, vocabulary: Vocabulary
    ) -> tuple[Rows, Question]:
        """By masks in all hidden places."""
        shown = np.where(hidden, np.int32(vocabulary.specials.mask), rows.pieces)
        question = ask_pieces(rows, chosen.where, chosen.weight)
        return replace(rows, pieces=shown), self._with_a_state(question, rows)

    def places(self, asked: Asked) -> Tensor:
        return (asked.where - self.shift).clamp(min=0)

    def states(self, asked: Asked, reading: Reading) -> Tensor:
        return reading.at(self.places(asked))

    def _with_a_state(self, question: Question, rows: Rows) -> Question:
        """No place counts whose answer would be read in the row before."""
        has_one = question.where % rows.pieces.shape[1] >= self.shift
        return replace(question, weight=question.weight * has_one)
