"""A pre-training run: its decisions, its job and its model folder."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from bertwright.batches.batch import Batch
from bertwright.core.config import Precision
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.saving import RECIPE_FILE, model_from_tensors, save_model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.recipes.loading import imported_plugins
from bertwright.runtime.compiler import compilation_failure, compilation_obstacle, is_compiler_error
from bertwright.runtime.device import hardware_description, package_versions
from bertwright.runtime.matmul_throughput import default_precision, explain_precision, matmul_peak
from bertwright.training.callbacks.callback import Callback
from bertwright.training.callbacks.ema import ExponentialMovingAverage
from bertwright.training.clock import BudgetClock, Progress, TrainingClock, Trigger, every_n_steps
from bertwright.training.compilation.callback import (
    COMPILE,
    CompilationCallback,
    CompilationSettings,
)
from bertwright.training.compilation.payoff import compilation_pays_off, flops_per_token
from bertwright.training.compilation.step_variants import StepVariants
from bertwright.training.compilation.trial import CompilationTrial, CompilationTrialSpec
from bertwright.training.distillation_loss import (
    PretrainingDistillationLoss,
    combined_loss_weights,
)
from bertwright.training.evaluation.evaluator import HeldOutEvaluator
from bertwright.training.loop import EvaluationResult, TrainingJob, TrainingResult, train
from bertwright.training.pretraining.job import pretraining_job
from bertwright.training.pretraining.run_folder import RunFolder
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.process_group import ProcessGroup
from bertwright.training.reporters.few_steps import FewStepsWarning
from bertwright.training.reporters.loss_plot import save_loss_plot
from bertwright.training.reporters.metrics_file import MetricsFile
from bertwright.training.reporters.progress_line import ProgressLine
from bertwright.training.reporters.tensorboard import TensorBoard
from bertwright.training.reporters.throughput import ThroughputMeter
from bertwright.training.run_warnings import RunWarnings
from bertwright.training.step_batch import StepBatch

Decision = TypeVar("Decision")

CHECKPOINT_SECONDS = 600.0
"""Seconds between checkpoints if the recipe does not set a number of steps."""


@dataclass(frozen=True)
class PretrainingResult:
    """The result of a finished run: model folder, cost and held-out metrics."""

    folder: Path
    num_steps: int
    num_tokens: int
    seconds: float
    metrics: Mapping[str, float]
    warnings: tuple[str, ...] = ()


class RestartUncompiled(Exception):
    """A request to restart from the last checkpoint without compilation."""

    def __init__(self, lost_seconds: float) -> None:
        super().__init__()
        self.lost_seconds = lost_seconds


class PretrainingRun:
    """A pre-training run, from its initial decisions to the model folder."""

    def __init__(
        self,
        model: Model,
        batches: PretrainingBatches,
        data: Dataset,
        folder: RunFolder,
        process_group: ProcessGroup,
        budget_seconds: float | None,
        start_time: float,
        distillation_loss: PretrainingDistillationLoss | None,
        is_sharded: bool = False,
    ) -> None:
        self._is_sharded = is_sharded
        self.recipe = recipe = model.recipe
        self.distillation_loss = model.distillation_loss = distillation_loss
        if distillation_loss is not None:
            distillation_loss.init(recipe.seed)
        self.batches, self.data, self.folder = batches, data, folder
        self.process_group, self.device = process_group, process_group.device
        folder.checkpoints.num_kept = recipe.checkpoints_kept
        self.decision_log = folder.decision_log(process_group)
        data_hash = self._decide("data", lambda: data.manifest.hash)
        self.budget_seconds: float | None = self._decide("budget", lambda: budget_seconds)
        require_same_data_and_budget(
            folder.path, data, data_hash, budget_seconds, self.budget_seconds
        )
        fingerprint = "" if distillation_loss is None else distillation_loss.fingerprint
        if self._decide("teacher", lambda: fingerprint) != fingerprint:
            raise UserError(
                f"{folder.path} was started with {'another' if distillation_loss else 'a'} "
                f"teacher: continue with the same one"
            )
        self.vocab_size = data.tokenizer.vocab_size
        self.precision: Precision = self._decide(
            "precision", lambda: recipe.precision or default_precision(self.device)
        )
        self.precision_reason = explain_precision(self.precision, self.device)
        if self.precision != (recipe.precision or default_precision(self.device)):
            self._log(f"the run continues in {self.precision}, {self.precision_reason}")
        elif self.precision == "bf16" and default_precision(self.device) == "float32":
            self._log(f"warning: precision=bf16 is {self.precision_reason}")
        self.peak_flops = matmul_peak(self.precision, self.device)
        self.variants = StepVariants(
            recipe, self.vocab_size, self.precision, torch.get_num_threads()
        )
        compiles = self._decide(COMPILE, self._should_compile)
        self.clock = self._make_clock(start_time)
        self.compilation = self._make_compilation() if compiles else None
        self.model = model
        self.parameters = self._make_parameters()
        decay = recipe.ema_decay
        self.ema = None if decay is None else ExponentialMovingAverage(self.parameters, decay)
        self.warnings = RunWarnings(self.decision_log, self._log)
        self.evaluator = HeldOutEvaluator(
            recipe, data, self.model, self.clock, self.warnings, self._log, process_group
        )

    def _make_parameters(self) -> MasterParameters:
        """Return the parameters to train, with the model on its device or sharded over several."""
        if self._is_sharded:
            # Takes a second to import.
            from bertwright.training.sharding import shard_model

            return shard_model(self.model, self.precision, self.process_group)
        self.model.to(self.device)
        return MasterParameters(
            self.model, get_parameter_roles(self.model), self.precision, self.device
        )

    def run(self, tensorboard: bool, quiet: bool) -> PretrainingResult:
        """Train, evaluate and write the model folder."""
        newest, damaged = self.folder.checkpoints.load_newest()
        for path in damaged:
            self._log(f"{path} is damaged and skipped")
        if newest is not None:
            self._log(f"continuing after step {newest.step:,}")
        elif damaged:
            self._log("no intact checkpoint: the run starts from the beginning")
        reporters = self._reporters(newest.step if newest else 0, tensorboard, quiet)
        try:
            result = train(self._make_job(reporters), newest)
        except Exception as error:
            if self.compilation is None or not is_compiler_error(error):
                raise
            self.decision_log.revise(COMPILE, False)
            self._log(f"{compilation_failure(error)}; training continues uncompiled")
            raise RestartUncompiled(self._seconds_since_checkpoint()) from error
        if self.compilation is not None and self.compilation.is_compiled:
            self.variants.mark_cache_warm()
        if self.ema is not None:
            self.ema.copy_to_parameters()
        metrics = dict[str, float]()
        if self._is_sharded or self.process_group.is_main:
            metrics = self.evaluator.evaluate_at_end()
        model = self._whole_model()
        if model is None:
            return PretrainingResult(
                self.folder.path, result.num_steps, result.num_tokens, result.seconds, metrics
            )
        return self._save(result, model, metrics)

    def _whole_model(self) -> Model | None:
        """Return the trained model on the first process; None on the others."""
        if self._is_sharded:
            tensors = self.process_group.gather_parts(self.parameters.state_dict())
            buffers = {name: buffer.cpu() for name, buffer in self.model.named_buffers()}
            if not self.process_group.is_main:
                return None
            return model_from_tensors(
                self.recipe, self.vocab_size, {**tensors, **buffers}, str(self.folder.path)
            )
        self.parameters.release()
        self.model.distillation_loss = None
        return self.model if self.process_group.is_main else None

    def _seconds_since_checkpoint(self) -> float:
        newest, _ = self.folder.checkpoints.load_newest()
        return self.clock.elapsed_seconds() - (newest.state["seconds"] if newest else 0.0)

    def _make_job(self, reporters: Sequence[Callback]) -> TrainingJob[Batch]:
        evaluate_every = self.recipe.evaluate_every
        job = pretraining_job(
            self.model,
            self.parameters,
            self.clock,
            ema=self.ema,
            distillation_loss=self.distillation_loss,
            callbacks=[*([] if self.compilation is None else [self.compilation]), *reporters],
            get_batch=self._get_batch,
            loss_weights=self._loss_weights,
            process_group=self.process_group,
            evaluate=self._evaluate,
            evaluation_trigger=every_n_steps(evaluate_every)
            if evaluate_every
            else self.evaluator.is_due,
            checkpoints=self.folder.checkpoints,
            checkpoint_trigger=self._checkpoint_trigger(),
            dump_folder=self.folder.path,
        )
        if self.compilation is not None:
            self.compilation.attach(job)
        return job

    def _get_batch(self, progress: Progress) -> StepBatch[Batch]:
        step, distillation = self.batches(progress), self.distillation_loss
        return step if distillation is None else distillation.prepare_step(step, progress)

    def _loss_weights(self, progress: Progress) -> Mapping[str, float]:
        weights = self.batches.loss_weights(progress)
        return combined_loss_weights(weights, self.distillation_loss, progress)

    def _evaluate(self, progress: Progress) -> EvaluationResult:
        with nullcontext() if self.ema is None else self.ema.use_average():
            return self.evaluator(progress)

    def _reporters(self, first_step: int, tensorboard: bool, quiet: bool) -> list[Callback]:
        if not self.process_group.is_main:
            return []
        flops = flops_per_token(self.recipe, self.vocab_size)
        throughput = ThroughputMeter(flops, self.peak_flops * self.process_group.world_size)
        reporters: list[Callback] = [
            throughput,
            MetricsFile(self.folder.metrics_file, self.clock, throughput, first_step),
            FewStepsWarning(self.clock, self.warnings),
        ]
        if not quiet:
            progress = ProgressLine(self.clock, throughput)
            progress.start(self._describe())
            reporters.append(progress)
        if tensorboard:
            reporters.append(TensorBoard(self.folder.path / "tensorboard"))
        return reporters

    def _describe(self) -> str:
        """Return a description of the start of the run."""
        compiled = "uncompiled"
        if self.compilation is not None:
            compiled = "compiling steps first"
            if self.budget_seconds is not None:
                compiled = "uncompiled while steps are compiled in the background"
        name, threads = self.recipe.name, torch.get_num_threads()
        return f"training {name} in {self.precision}, {threads} threads, {compiled}"

    def _make_clock(self, start_time: float) -> TrainingClock:
        phase_fractions = [phase.fraction for phase in self.recipe.phases]
        if self.budget_seconds is None:
            return TrainingClock(self.recipe.steps, phase_fractions, start_time)
        return BudgetClock(
            self.budget_seconds,
            phase_fractions,
            start_time,
            decision_log=self.decision_log,
            process_group=self.process_group,
        )

    def _checkpoint_trigger(self) -> Trigger:
        if self.recipe.checkpoint_every is not None:
            return every_n_steps(self.recipe.checkpoint_every)
        last_time = time.monotonic()

        def is_due(before: Progress, after: Progress) -> bool:
            nonlocal last_time
            if not self.process_group.broadcast(time.monotonic() - last_time >= CHECKPOINT_SECONDS):
                return False
            last_time = time.monotonic()
            return True

        return is_due

    def _should_compile(self) -> bool:
        if self.distillation_loss is not None:
            if self.recipe.compile is True:
                self._log("compile: distillation is not compiled")
            return False
        if self._is_sharded:
            if self.recipe.compile is True:
                self._log("compile: a sharded model is not compiled")
            return False
        if self.recipe.compile is False:
            return False
        obstacle = compilation_obstacle() if self.device.type == "cpu" else None
        if obstacle is not None:
            self._log(f"steps are not compiled: {obstacle}")
            return False
        if self.recipe.compile is True:
            return True
        return compilation_pays_off(
            self.recipe,
            self.variants,
            self.vocab_size,
            self.device.type,
            self.peak_flops,
            self.budget_seconds,
        )

    def _make_compilation(self) -> CompilationCallback:
        spec = CompilationTrialSpec(
            str(self.folder.path / RECIPE_FILE),
            str(self.data.path),
            self.precision,
            torch.get_num_threads(),
            [str(path) for path in imported_plugins()],
        )
        return CompilationCallback(
            CompilationSettings(
                self.variants,
                self.decision_log,
                self.clock,
                self.process_group,
                self._log,
                None if self.budget_seconds is None else partial(CompilationTrial, spec),
                always_compile=self.recipe.compile is True,
            )
        )

    def _decide(self, name: str, compute: Callable[[], Decision]) -> Decision:
        """Return a decision made once per run, by the first process."""
        return self.process_group.broadcast(self.decision_log.decide(name, compute))

    def _log(self, message: str) -> None:
        if self.process_group.is_main:
            print(message, file=sys.stderr, flush=True)

    def _save(
        self, result: TrainingResult, model: Model, metrics: Mapping[str, float]
    ) -> PretrainingResult:
        save_loss_plot(
            self.folder.metrics_file, self.folder.loss_plot, metrics.get("unigram_entropy")
        )
        final = PretrainingResult(
            self.folder.path,
            result.num_steps,
            result.num_tokens,
            self.clock.elapsed_seconds(),
            metrics,
            self.warnings.messages,
        )
        save_model(self.folder.path, model, self.data.tokenizer, self._training_record(final))
        return final

    def _training_record(self, result: PretrainingResult) -> dict[str, Any]:
        """Return the content of ``training.json``."""
        manifest = self.data.manifest
        return {
            "recipe": self.recipe.name,
            "seed": self.recipe.seed,
            "data": self.data.origin,
            "data_hash": manifest.hash,
            "tokenizer_hash": manifest.tokenizer.hash,
            "steps": result.num_steps,
            "tokens": result.num_tokens,
            "seconds": round(result.seconds, 2),
            "budget_seconds": self.budget_seconds,
            "precision": self.precision,
            "precision_reason": self.precision_reason,
            "compiled": self.compilation is not None and self.compilation.is_compiled,
            "processes": self.process_group.world_size,
            "sharded": self._is_sharded,
            "hardware": hardware_description(),
            "matrix_peak": self.peak_flops,
            "versions": package_versions("bertwright", "torch", "tokenizers", "numpy"),
            "result": dict(result.metrics),
            "warnings": list(result.warnings),
        }


def require_same_data_and_budget(
    folder: Path,
    data: Dataset,
    data_hash: str,
    budget_seconds: float | None,
    first_budget_seconds: float | None,
) -> None:
    """Raise UserError if a run was started with other data or another budget."""
    if data.manifest.hash != data_hash:
        raise UserError(
            f"{folder} was started with other data than {data.path}: continue with the same data"
        )
    if budget_seconds is not None and budget_seconds != first_budget_seconds:
        first = (
            "a number of steps"
            if first_budget_seconds is None
            else f"a budget of {first_budget_seconds} seconds"
        )
        raise UserError(f"{folder} was started with {first}: continue without --budget")
