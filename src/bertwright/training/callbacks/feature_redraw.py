"""New random features for attention after a number of steps (Choromanski et al. 2021)."""

from collections.abc import Mapping

from torch import Tensor

from bertwright.models.model import Model
from bertwright.modules.attention.random_features import RandomFeatureAttention
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress


class FeatureRedraw(Callback):
    """A callback that draws the features of every block again after ``num_steps`` steps.

    They depend on the seed, the block and the number of the draw, so a resumed run draws the same.
    The state is for the model of a checkpoint, and for a run that ended with it.
    """

    name = "features"

    def __init__(self, model: Model, num_steps: int, seed: int) -> None:
        self._attentions = {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, RandomFeatureAttention)
        }
        self._num_steps, self._seed = num_steps, seed
        self._draw: int | None = None

    def before_step(self, progress: Progress) -> None:
        draw = progress.step // self._num_steps
        if draw == self._draw:
            return
        self._draw = draw
        for block, attention in enumerate(self._attentions.values()):
            attention.draw_features(self._seed, draw, block)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}.random_features": a.random_features for name, a in self._attentions.items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, attention in self._attentions.items():
            attention.random_features.copy_(state[f"{name}.random_features"])
