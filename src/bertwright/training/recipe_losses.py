"""The losses that a recipe asks of its model."""

from collections.abc import Mapping

from bertwright.encoder.kernels.noise import Noise
from bertwright.examples.batches import Batch
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.objective import Loss
from bertwright.recipes import Recipe
from bertwright.training.clock import Place
from bertwright.training.stream_memory import StreamMemory
from bertwright.training.teaching import PieceLesson, PieceTeaching


class RecipeLosses:
    """The losses of a micro-batch at its place in the run: each phase asks its own questions.

    ``with_dropout`` False leaves out what the recipe drops; ``memory`` is carried on from step to
    step; ``teaching`` adds the losses of a teacher.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        with_dropout: bool = True,
        memory: StreamMemory | None = None,
        teaching: PieceTeaching | None = None,
    ) -> None:
        rewrites = any(o.rewrites for o in recipe.objectives.values())
        self._draws = with_dropout and (rewrites or recipe.encoder.draws)
        self._drops = with_dropout and recipe.encoder.drops
        self._seed = recipe.seed
        self._strengths = [phase.dropout for phase in recipe.phases]
        self._model = model
        self._memory = memory or StreamMemory(0)
        self._teaching = teaching
        self._objectives = [recipe.objectives_of(phase) for phase in range(len(recipe.phases))]

    def __call__(self, batch: Batch, place: Place) -> Mapping[str, Loss]:
        device = self._model.embedding.device
        strength = self._strengths[place.phase].at(place.phase_progress)
        noise = None
        if self._draws or (self._drops and strength > 0.0):
            noise = Noise.of(self._seed, place.step, batch.first_row, device, strength)
        moved = TensorBatch(batch, device)
        objectives = self._objectives[place.phase]
        teaching = self._teaching
        with self._memory.within(moved) as memory:
            if teaching is None:
                return self._model.losses(moved, objectives, noise, memory)
            with self._model.record(*teaching.sites(place), gradients=True) as values:
                own = self._model.losses(moved, objectives, noise, memory)
        lesson = PieceLesson(moved, objectives, values, place)
        return {**own, **teaching.losses(lesson)}
