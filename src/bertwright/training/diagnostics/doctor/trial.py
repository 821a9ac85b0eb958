"""A trial: a few training steps of a recipe in a temporary folder."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bertwright.batches.batch import Batch
from bertwright.core.schedules import ConstantSchedule
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import OptimiserConfig
from bertwright.recipes import Recipe
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob, train
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup
from bertwright.training.reporters.progress_line import ProgressLine
from bertwright.training.reporters.throughput import ThroughputMeter
from bertwright.training.step_batch import StepBatch
from bertwright.training.step_monitor import NonFiniteError


class StopTrial(Exception):
    """Raised to end a trial early."""


@dataclass(frozen=True)
class DiagnosticTrial:
    """A recipe of one phase, whose ``objective`` predicts tokens, and its data."""

    recipe: Recipe
    objective: str
    data: Dataset
    process_group: ProcessGroup

    @classmethod
    def of_recipe(
        cls, recipe: Recipe, data: Dataset, process_group: ProcessGroup
    ) -> "DiagnosticTrial | None":
        """Return the trial of the longest phase that predicts tokens, None if there is none."""
        candidates = [
            (phase.fraction, number, name)
            for number, phase in enumerate(recipe.phases)
            for name, objective in recipe.objectives_of(number).items()
            if objective.capabilities.predicts_tokens
        ]
        if not candidates:
            return None
        _, phase, name = max(candidates, key=lambda candidate: candidate[0])
        return cls(_single_phase_recipe(recipe, phase, name), name, data, process_group)

    def with_batch_limit(self, max_batch_tokens: float) -> "DiagnosticTrial":
        """Return the trial with batches of at most ``max_batch_tokens``, at least one sequence."""
        return replace(self, recipe=limit_batch_tokens(self.recipe, max_batch_tokens))

    def run(
        self,
        clock: TrainingClock,
        on_step: Callable[[StepReport], None],
        *,
        optimiser: OptimiserConfig,
        learning_rate_factor: Callable[[float], float],
        get_batch: Callable[[Progress], StepBatch[Batch]] | None = None,
        use_dropout: bool = True,
    ) -> bool:
        """Train a new model until the clock is finished or ``on_step`` raises StopTrial.

        Returns whether loss and gradient stayed finite.
        """
        recipe, device = self.recipe, self.process_group.device
        model = Model.build(recipe, self.data.tokenizer.vocab_size, self.data.tokenizer).to(device)
        precision = recipe.precision or default_precision(device)
        parameters = MasterParameters(model, get_parameter_roles(model), precision, device)
        batches = PretrainingBatches(recipe, self.data, self.process_group)
        throughput = ThroughputMeter()
        progress_line = ProgressLine(clock, throughput)
        with tempfile.TemporaryDirectory() as folder:
            job = TrainingJob(
                parameters=parameters,
                optimiser=optimiser.build(parameters),
                get_batch=get_batch or batches,
                compute_losses=PretrainingLosses(recipe, model, use_dropout),
                clock=clock,
                learning_rate_factor=learning_rate_factor,
                loss_weights=batches.loss_weights,
                gradient_clipping=GradientClipping(recipe.max_grad_norm),
                process_group=self.process_group,
                callbacks=[throughput, progress_line, _StepListener(on_step)],
                dump_folder=Path(folder),
            )
            try:
                train(job)
            except StopTrial:
                return True
            except NonFiniteError:
                return False
        return True


def limit_batch_tokens(recipe: Recipe, max_batch_tokens: float) -> Recipe:
    """Return the recipe with at most ``max_batch_tokens`` per step, at least one sequence."""
    highest = recipe.batch_tokens.value_range()[1]
    if highest * max(phase.batch for phase in recipe.phases) <= max_batch_tokens:
        return recipe
    limited = [
        max(min(highest * phase.batch, max_batch_tokens), recipe.input_format_of(number).length)
        for number, phase in enumerate(recipe.phases)
    ]
    phases = tuple(
        phase.model_copy(update={"batch": tokens / max_batch_tokens})
        for phase, tokens in zip(recipe.phases, limited, strict=True)
    )
    batch_tokens = ConstantSchedule(value=max_batch_tokens)
    return recipe.model_copy(update={"batch_tokens": batch_tokens, "phases": phases})


def _single_phase_recipe(recipe: Recipe, phase: int, objective: str) -> Recipe:
    """Return a recipe of one phase, with the group of one objective in every step."""
    changes: dict[str, object] = {"fraction": 1.0, "batch": 1.0}
    groups = recipe.objective_schedule(phase)
    if len(groups) > 1:
        settings = recipe.phases[phase].objectives or {}
        group = next(group.objectives for group in groups if objective in group.objectives)
        changes["objectives"] = {name: settings.get(name, {}) for name in group}
    single_phase = recipe.phases[phase].model_copy(update=changes)
    batch_tokens = ConstantSchedule(value=recipe.batch_tokens_at(phase, 1.0))
    return recipe.model_copy(update={"batch_tokens": batch_tokens, "phases": (single_phase,)})


class _StepListener(Callback):
    def __init__(self, on_step: Callable[[StepReport], None]) -> None:
        self._on_step = on_step

    def report_step(self, report: StepReport) -> None:
        self._on_step(report)
