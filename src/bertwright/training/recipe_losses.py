"""The losses that a recipe asks of its model."""

from collections.abc import Mapping

from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers.attention import AttentionChoice
from bertwright.examples.batches import Batch
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.objective import Loss
from bertwright.recipes import Recipe
from bertwright.training.clock import Place


class RecipeLosses:
    """The losses of a micro-batch at its place in the run: each phase asks its own questions.

    ``with_dropout`` False leaves out what the recipe drops.
    """

    def __init__(self, recipe: Recipe, model: Model, with_dropout: bool = True) -> None:
        mixer = recipe.encoder.mixer
        rates = (recipe.encoder.dropout, mixer.dropout if isinstance(mixer, AttentionChoice) else 0)
        self._drops = with_dropout and max(rates) > 0
        self._seed = recipe.seed
        self._model = model
        self._objectives = [recipe.objectives_of(phase) for phase in range(len(recipe.phases))]

    def __call__(self, batch: Batch, place: Place) -> Mapping[str, Loss]:
        device = self._model.embedding.device
        noise = None
        if self._drops:
            noise = Noise.of(self._seed, place.step, batch.first_row, device)
        moved = TensorBatch(batch, device)
        return self._model.losses(moved, self._objectives[place.phase], noise)
