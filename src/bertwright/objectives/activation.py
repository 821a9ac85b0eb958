"""Keeping states small, and slow to change (Merity et al. 2017).

No question at all, but answered and weighed like one. What a place sees is left to the others.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.encoder.visibility import Visibility
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, every_place, every_step

from .objective import Asked, Asking, Loss, Objective, Reading


class Activation(Objective):
    """What the two have in common: a mean square over the width of the states."""

    guesses: ClassVar[bool] = False

    @property
    def visibility(self) -> Visibility | None:
        return None

    def _loss(self, change: Tensor, asked: Asked) -> Loss:
        squares = change.square().mean(1)
        return asked.score(squares, torch.zeros_like(squares))


class ActivationSize(Activation):
    """The size of the states, which are those after dropout: AR."""

    kind: Literal["activation-size"] = "activation-size"

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, every_place(rows)

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return self._loss(reading.at(asked.where), asked)


class ActivationChange(Activation):
    """How far a state is from the one before it: TAR. Where dropout is locked, it is that of what
    is kept."""

    kind: Literal["activation-change"] = "activation-change"

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, every_step(rows)

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return self._loss(reading.at(asked.where + 1) - reading.at(asked.where), asked)
