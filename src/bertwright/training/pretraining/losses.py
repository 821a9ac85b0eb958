"""The losses of a recipe for its model."""

from collections.abc import Mapping

from bertwright.batches.batch import Batch
from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.model_output import Loss
from bertwright.recipes import Recipe
from bertwright.training.callbacks.segment_memory import SegmentMemory
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import PretrainingDistillationLoss, StudentOutputs


class PretrainingLosses:
    """Computes the losses of a micro-batch with the objectives of the current phase.

    ``use_dropout=False`` disables the recipe's dropout; ``memory`` is carried from step to step.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: Model,
        use_dropout: bool = True,
        memory: SegmentMemory | None = None,
        distillation_loss: PretrainingDistillationLoss | None = None,
    ) -> None:
        has_generator = any(o.capabilities.is_generator for o in recipe.objectives.values())
        self._uses_randomness = use_dropout and (
            has_generator or recipe.encoder.is_stochastic or recipe.output.is_stochastic
        )
        self._uses_dropout = use_dropout and recipe.encoder.has_dropout
        self._seed = recipe.seed
        self._dropout_scales = [phase.dropout for phase in recipe.phases]
        self._model = model
        self._memory = memory or SegmentMemory(0)
        self._distillation_loss = distillation_loss
        self._objectives = [recipe.objectives_of(phase) for phase in range(len(recipe.phases))]

    def __call__(self, batch: Batch, progress: Progress) -> Mapping[str, Loss]:
        device = self._model.embedding_table.device
        dropout_scale = self._dropout_scales[progress.phase].at(progress.phase_fraction)
        rng = None
        if self._uses_randomness or (self._uses_dropout and dropout_scale > 0.0):
            rng = DropoutRng.for_step(
                self._seed, progress.step, batch.first_sequence, device, dropout_scale
            )
        device_batch = DeviceBatch(batch, device)
        objectives = self._objectives[progress.phase]
        distillation = self._distillation_loss
        with self._memory.memory_of(device_batch) as memory:
            if distillation is None:
                return self._model.losses(device_batch, objectives, rng, memory)
            taps = distillation.taps(progress)
            with self._model.record(*taps, output_gradients=True) as tap_values:
                losses = self._model.losses(device_batch, objectives, rng, memory)
        outputs = StudentOutputs(device_batch, tap_values, progress)
        return {**losses, **distillation.losses(outputs)}
