"""Gradual unfreezing (Howard and Ruder 2018, section 3.3) and learning rates per level.

Levels are counted from the end: the heads, the last block, the block before it, ..., the
embeddings.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress


class UnfreezingCallback(Callback):
    """A callback that trains only the last ``num_trainable_levels`` levels; None for all.

    Frozen parameters have no gradient, keep their exact values and are skipped by the optimiser,
    which is reset when the number changes.
    """

    name = "unfreezing"

    def __init__(
        self,
        parameters: MasterParameters,
        optimiser: Optimiser,
        num_trainable_levels: Callable[[Progress], int | None],
    ) -> None:
        self._parameters, self._optimiser = parameters, optimiser
        self._num_trainable_levels = num_trainable_levels
        self._first_level = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def before_step(self, progress: Progress) -> None:
        num_trainable = self._num_trainable_levels(progress)
        num_levels = self._parameters.num_levels
        first = 0 if num_trainable is None else max(0, num_levels - num_trainable)
        if first == int(self._first_level):
            return
        self._first_level.fill_(first)
        self._parameters.freeze_below(first)
        self._optimiser.reset()

    def state(self) -> dict[str, Tensor]:
        return {"first_level": self._first_level}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._first_level.copy_(state["first_level"])
        self._parameters.freeze_below(int(self._first_level))


class LevelLearningRates(Callback):
    """A callback that scales the learning rate of every level; it has no state."""

    name = "level-rates"

    def __init__(
        self,
        parameters: MasterParameters,
        learning_rate_factors: Callable[[Progress], Sequence[float] | None],
    ) -> None:
        self._parameters, self._learning_rate_factors = parameters, learning_rate_factors

    def before_step(self, progress: Progress) -> None:
        self._parameters.level_factors = self._learning_rate_factors(progress)
