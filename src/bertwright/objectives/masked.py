"""Masked language modelling: which pieces were here? (Devlin et al. 2019, section 3.1)."""

from typing import ClassVar, Literal

from torch import nn

from bertwright.examples.coordinates import Rows
from bertwright.examples.corruption import Corruption, Replace
from bertwright.examples.questions import Question, hide
from bertwright.examples.selection import Selection, Tokens, num_slots

from .objective import Asked, Asking, Loss, Objective, Reading


class Masked(Objective):
    """Hide pieces and ask for them.

    ``shift`` is the distance from the state that answers to the place that is asked: 0 reads the
    answer at the place itself, as every stock class does; 1 reads it one place before, so that a
    causal and a masked phase train the same road (Charpentier and Samuel 2024).
    Relations: ``causal`` asks for every next piece instead and hides nothing.
    """

    kind: Literal["masked"] = "masked"
    selection: Selection = Tokens()
    corruption: Corruption = Replace()
    shift: Literal[0, 1] = 0

    names_pieces: ClassVar[bool] = True

    @property
    def highest_rate(self) -> float:
        """The most that is hidden at any progress: what a step has room for."""
        return max(self.selection.rate.at(0.0), self.selection.rate.at(1.0))

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return hide(
            rows,
            self.selection,
            self.corruption,
            asking.vocabulary,
            asking.draw.named("masked"),
            self.selection.rate.at(asking.progress),
            num_slots(rows.pieces.shape[1], self.highest_rate),
        )

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return reading.piece_loss(asked, self.shift)
