"""Dropout in training: the rates of each layer, and locked dropout."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from bertwright.core.config import Settings
from bertwright.modules.dropout_rng import DropoutRng, dropout, locked_dropout


class LockedDropoutConfig(Settings):
    """Dropout that is the same at all positions of a sequence (Gal and Ghahramani 2016).

    The rates apply to the input of the first block, between blocks, and to the output of the last
    (Merity et al. 2018).
    """

    input: float = Field(default=0.0, ge=0, lt=1)
    hidden: float = Field(default=0.0, ge=0, lt=1)
    output: float = Field(default=0.0, ge=0, lt=1)


@dataclass(frozen=True)
class Dropout:
    """A dropout layer with a fixed rate."""

    dropout_rate: float
    is_locked: bool = False

    def __call__(self, x: Tensor, dropout_rng: DropoutRng | None, stream: int) -> Tensor:
        """Apply dropout to x (B, L, D); see ``dropout_rng``."""
        if self.is_locked:
            return locked_dropout(x, self.dropout_rate, dropout_rng, stream)
        return dropout(x, self.dropout_rate, dropout_rng, stream)


DropoutConfig = Annotated[float, Field(ge=0, lt=1)] | LockedDropoutConfig
"""Type of the recipe field: one rate for the whole model, or rates of locked dropout."""


def has_dropout(config: DropoutConfig) -> bool:
    """Return whether any rate is above 0."""
    if isinstance(config, LockedDropoutConfig):
        return max(config.input, config.hidden, config.output) > 0
    return config > 0


def input_dropout(config: DropoutConfig) -> Dropout:
    """Return the dropout of the embeddings."""
    return (
        Dropout(config.input, True) if isinstance(config, LockedDropoutConfig) else Dropout(config)
    )


def block_dropout(config: DropoutConfig, is_last: bool) -> Dropout:
    """Return the dropout of a block's sublayer outputs."""
    if isinstance(config, LockedDropoutConfig):
        return Dropout(config.output if is_last else config.hidden, is_locked=True)
    return Dropout(config)
