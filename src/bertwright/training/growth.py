"""Progressive stacking: a shallow stack is trained, then copied on top of itself (Gong 2019).

The model has its full depth from the beginning; a phase runs only the first of its blocks.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bertwright.model.model import Model
from bertwright.optimisers.optimiser import Update
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure

BLOCKS = "encoder.blocks."


class Growth(Procedure):
    """Runs as many blocks as the phase has; where that grows, block i becomes a copy of block i
    modulo the depth before, and the optimiser begins anew.

    ``beside`` are flat buffers laid out as the parameters, which grow with them.
    """

    name = "growth"

    def __init__(
        self,
        model: Model,
        parameters: MasterParameters,
        update: Update,
        beside: Sequence[Tensor] = (),
    ) -> None:
        self._recipe: Recipe = model.recipe
        self._encoder = model.encoder
        self._parameters, self._update = parameters, update
        self._growing = [parameters.master, *beside]
        self._depth = torch.zeros((), dtype=torch.int64)

    def before_step(self, place: Place) -> None:
        before, depth = int(self._depth), self._recipe.num_blocks_of(place.phase)
        if 0 < before < depth:
            self._stack(before, depth)
        self._depth.fill_(depth)
        self._encoder.running = depth

    @torch.no_grad()
    def _stack(self, before: int, depth: int) -> None:
        for flat in self._growing:
            named = self._parameters.views(flat)
            for name, value in named.items():
                if name.startswith(BLOCKS):
                    index, rest = name.removeprefix(BLOCKS).split(".", 1)
                    if before <= int(index) < depth:
                        value.copy_(named[f"{BLOCKS}{int(index) % before}.{rest}"])
        self._parameters.refresh()
        self._update.reset()

    def state(self) -> dict[str, Tensor]:
        return {"depth": self._depth}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._depth.copy_(state["depth"])
