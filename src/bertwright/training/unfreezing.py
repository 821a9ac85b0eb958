"""Only the last levels of a model are trained, and more of them as training goes on.

Levels are counted from the end: what stands behind the blocks (the heads), the last block, the one
before it, what stands before the blocks (Howard and Ruder 2018, section 3.3: gradual unfreezing).
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bertwright.optimisers.optimiser import Update
from bertwright.optimisers.parameters import MasterParameters
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure


class Unfreezing(Procedure):
    """Trains as many of the last levels as ``trained`` says of a place, None for all.

    What is frozen has no gradient, keeps its values to the last bit, and is not seen by the
    optimiser, which begins anew where the number changes.
    """

    name = "unfreezing"

    def __init__(
        self,
        parameters: MasterParameters,
        update: Update,
        trained: Callable[[Place], int | None],
    ) -> None:
        self._parameters, self._update, self._trained = parameters, update, trained
        self._first_level = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def before_step(self, place: Place) -> None:
        number = self._trained(place)
        levels = self._parameters.num_levels
        first = 0 if number is None else max(0, levels - number)
        if first == int(self._first_level):
            return
        self._first_level.fill_(first)
        self._parameters.train_from(first)
        self._update.reset()

    def state(self) -> dict[str, Tensor]:
        return {"first_level": self._first_level}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._first_level.copy_(state["first_level"])
        self._parameters.train_from(int(self._first_level))
