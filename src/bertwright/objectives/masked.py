"""Masked language modelling: which pieces were here? (Devlin et al. 2019, section 3.1)."""

from typing import ClassVar, Literal

from torch import Tensor

from .hiding import Hiding
from .objective import Asked, Reading


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

    def states(self, asked: Asked, reading: Reading) -> Tensor:
        return reading.at(asked.where - self.shift)
