"""What is dropped while training: where, how much of it, and whether anew at every place."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from bertwright.axes import Settings
from bertwright.encoder.kernels.noise import Noise, dropout, locked_dropout


class LockedDropout(Settings):
    """What is dropped is the same at all places of a row (Gal and Ghahramani 2016).

    The rates are those of the input of the first block, of what goes from block to block, and of
    the output of the last (Merity et al. 2018).
    """

    input: float = Field(default=0.0, ge=0, lt=1)
    hidden: float = Field(default=0.0, ge=0, lt=1)
    output: float = Field(default=0.0, ge=0, lt=1)


@dataclass(frozen=True)
class Drop:
    """The dropout of one place in the model."""

    rate: float
    locked: bool = False

    def __call__(self, x: Tensor, noise: Noise | None, site: int) -> Tensor:
        """x (B, L, D) with some of it 0 and the rest scaled up; see ``kernels.noise``."""
        if self.locked:
            return locked_dropout(x, self.rate, noise, site)
        return dropout(x, self.rate, noise, site)


Dropout = Annotated[float, Field(ge=0, lt=1)] | LockedDropout
"""The type of a recipe field: one rate for every place in the model, or locked rates."""


def drops(choice: Dropout) -> bool:
    """Whether anything is dropped at all."""
    if isinstance(choice, LockedDropout):
        return max(choice.input, choice.hidden, choice.output) > 0
    return choice > 0


def at_input(choice: Dropout) -> Drop:
    """The dropout of the embeddings."""
    return Drop(choice.input, True) if isinstance(choice, LockedDropout) else Drop(choice)


def after_block(choice: Dropout, is_last: bool) -> Drop:
    """The dropout of what the sublayers of a block write."""
    if isinstance(choice, LockedDropout):
        return Drop(choice.output if is_last else choice.hidden, locked=True)
    return Drop(choice)
