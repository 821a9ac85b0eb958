"""Ponder time: how long does each place take? (Graves 2016, section 2.1)."""

from typing import ClassVar, Literal

from torch import nn

from bertwright.encoder.visibility import Visibility
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, every_place
from bertwright.schedules import Constant, Value

from .objective import Asked, Asking, Loss, Objective, Reading


class Ponder(Objective):
    """The mean over all real places of the number of blocks that they passed through and of their
    last weight, so that a place takes no longer than it repays.

    Needs a depth that halts. What counts as right is to halt before the last block.
    """

    kind: Literal["ponder"] = "ponder"
    weight: Value = Constant(value=0.01)

    guesses: ClassVar[bool] = False

    @property
    def visibility(self) -> Visibility | None:
        return None

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, every_place(rows)

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        taken, halted = (
            reading.notes[name].flatten()[asked.where] for name in ("ponder", "halted")
        )
        return asked.score(taken, halted)
