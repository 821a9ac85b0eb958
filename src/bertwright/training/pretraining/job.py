"""The training job of a pre-training recipe."""

from collections.abc import Sequence
from typing import Any

from bertwright.batches.batch import Batch
from bertwright.core.config import Precision
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.modules.attention.random_features import RandomFeaturesConfig
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes import Recipe
from bertwright.runtime.process import default_device
from bertwright.training.callbacks.callback import Callback
from bertwright.training.callbacks.ema import ExponentialMovingAverage
from bertwright.training.callbacks.feature_redraw import FeatureRedraw
from bertwright.training.callbacks.progressive_stacking import ProgressiveStacking
from bertwright.training.callbacks.segment_memory import SegmentMemory
from bertwright.training.callbacks.unfreezing import LevelLearningRates, UnfreezingCallback
from bertwright.training.clock import TrainingClock
from bertwright.training.distillation_loss import PretrainingDistillationLoss
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup


def pretraining_job(
    model: Model,
    parameters: MasterParameters,
    clock: TrainingClock,
    *,
    ema: ExponentialMovingAverage | None = None,
    distillation_loss: PretrainingDistillationLoss | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> TrainingJob[Batch]:
    """Return the job of a model's recipe; ``settings`` are further fields, such as ``get_batch``.

    ``callbacks`` run after the recipe's own callbacks.
    """
    recipe = model.recipe
    optimiser, memory = (
        recipe.optimiser.build(parameters),
        SegmentMemory.for_recipe(recipe),
    )
    recipe_callbacks = _recipe_callbacks(model, parameters, optimiser, ema)
    if distillation_loss is not None:
        recipe_callbacks.append(
            LevelLearningRates(parameters, distillation_loss.level_learning_rates)
        )
    return TrainingJob(
        parameters=parameters,
        optimiser=optimiser,
        compute_losses=PretrainingLosses(
            recipe, model, memory=memory, distillation_loss=distillation_loss
        ),
        clock=clock,
        learning_rate_factor=recipe.schedule.at,
        gradient_clipping=GradientClipping(recipe.max_grad_norm),
        callbacks=[*recipe_callbacks, *callbacks, memory],
        compile_model=model.compile_parts,
        **settings,
    )


def untrained_job(
    recipe: Recipe,
    data: Dataset,
    precision: Precision,
    clock: TrainingClock,
    callbacks: Sequence[Callback] = (),
) -> TrainingJob[Batch]:
    """Return a job on a data set from random weights, without evaluation and checkpoints."""
    device = default_device()
    model = Model.build(recipe, data.tokenizer.vocab_size, data.tokenizer).to(device)
    batches = PretrainingBatches(recipe, data)
    return pretraining_job(
        model,
        MasterParameters(model, get_parameter_roles(model), precision, device),
        clock,
        callbacks=callbacks,
        get_batch=batches,
        loss_weights=batches.loss_weights,
        process_group=ProcessGroup(device=device),
    )


def _recipe_callbacks(
    model: Model,
    parameters: MasterParameters,
    optimiser: Optimiser,
    ema: ExponentialMovingAverage | None,
) -> list[Callback]:
    """Return the callbacks of a model's recipe."""
    phases, mixer = model.recipe.phases, model.recipe.encoder.mixer
    callbacks: list[Callback] = []
    if isinstance(mixer, RandomFeaturesConfig) and mixer.redraw is not None:
        callbacks.append(FeatureRedraw(model, mixer.redraw, model.recipe.seed))
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
