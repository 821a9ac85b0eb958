"""Progressive stacking: train a shallow stack, then copy it on top of itself (Gong 2019).

The model has its full depth from the start; a phase runs only its first blocks.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bertwright.models.model import Model
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress

BLOCKS_PREFIX = "encoder.blocks."


class ProgressiveStacking(Callback):
    """A callback that runs as many blocks as the current phase uses.

    When the depth grows, block i becomes a copy of block i modulo the previous depth, and the
    optimiser is reset. ``other_buffers`` are flat buffers with the layout of the parameters; they
    are copied in the same way.
    """

    name = "growth"

    def __init__(
        self,
        model: Model,
        parameters: MasterParameters,
        optimiser: Optimiser,
        other_buffers: Sequence[Tensor] = (),
    ) -> None:
        self._recipe: Recipe = model.recipe
        self._encoder = model.encoder
        self._parameters, self._optimiser = parameters, optimiser
        self._buffers = [parameters.master, *other_buffers]
        self._depth = torch.zeros((), dtype=torch.int64)

    def before_step(self, progress: Progress) -> None:
        before, depth = int(self._depth), self._recipe.num_blocks_of(progress.phase)
        if 0 < before < depth:
            self._stack(before, depth)
        self._depth.fill_(depth)
        self._encoder.num_running_blocks = depth

    @torch.no_grad()
    def _stack(self, depth_before: int, depth: int) -> None:
        for flat in self._buffers:
            views = self._parameters.views(flat)
            for name, value in views.items():
                if name.startswith(BLOCKS_PREFIX):
                    index, rest = name.removeprefix(BLOCKS_PREFIX).split(".", 1)
                    if depth_before <= int(index) < depth:
                        value.copy_(views[f"{BLOCKS_PREFIX}{int(index) % depth_before}.{rest}"])
        self._parameters.refresh_compute()
        self._optimiser.reset()

    def state(self) -> dict[str, Tensor]:
        return {"depth": self._depth}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._depth.copy_(state["depth"])
