"""A bare pre-training job: no budget, no evaluation, no checkpoints."""

from collections.abc import Sequence

from bertwright.batches.batch import Batch
from bertwright.core.config import Precision
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes import Recipe
from bertwright.runtime.process import default_device
from bertwright.training.callbacks.callback import Callback
from bertwright.training.callbacks.ema import ExponentialMovingAverage
from bertwright.training.callbacks.progressive_stacking import ProgressiveStacking
from bertwright.training.callbacks.segment_memory import SegmentMemory
from bertwright.training.callbacks.unfreezing import UnfreezingCallback
from bertwright.training.clock import TrainingClock
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup


def pretraining_job(
    recipe: Recipe,
    data: Dataset,
    precision: Precision,
    clock: TrainingClock,
    callbacks: Sequence[Callback] = (),
) -> TrainingJob[Batch]:
    """Return the job of a recipe on a data set, with random initial weights."""
    device = default_device()
    model = Model.build(recipe, data.tokenizer.vocab_size, data.tokenizer).to(device)
    parameters = MasterParameters(model, get_parameter_roles(model), precision, device)
    optimiser = recipe.optimiser.build(parameters)
    batches, memory = PretrainingBatches(recipe, data), SegmentMemory(recipe.encoder.memory_length)
    return TrainingJob(
        parameters=parameters,
        optimiser=optimiser,
        get_batch=batches,
        compute_losses=PretrainingLosses(recipe, model, memory=memory),
        clock=clock,
        learning_rate_factor=recipe.schedule.at,
        loss_weights=batches.loss_weights,
        gradient_clipping=GradientClipping(recipe.max_grad_norm),
        process_group=ProcessGroup(device=device),
        callbacks=[*callbacks, *pretraining_callbacks(model, parameters, optimiser, None), memory],
        compile_model=model.compile_parts,
    )


def pretraining_callbacks(
    model: Model,
    parameters: MasterParameters,
    optimiser: Optimiser,
    ema: ExponentialMovingAverage | None,
) -> list[Callback]:
    """Return the callbacks of a model's recipe."""
    phases = model.recipe.phases
    callbacks: list[Callback] = []
    if ema is not None:
        callbacks.append(ema)
    if phases[0].depth < 1.0:
        averages = [] if ema is None else [ema.average]
        callbacks.append(ProgressiveStacking(model, parameters, optimiser, averages))
    if any(phase.trainable_layers for phase in phases):
        callbacks.append(
            UnfreezingCallback(
                parameters, optimiser, lambda progress: phases[progress.phase].trainable_layers
            )
        )
    return callbacks
