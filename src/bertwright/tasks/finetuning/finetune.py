"""Fine-tuning: train a task model from a pretrained encoder and examples.

With several seeds, the run is repeated with another head initialisation, data order and dropout,
because on small tasks chance matters as much as the method (Dodge et al. 2020). The result is the
mean with its interval; the model with the best held-out score is kept.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.core.files import require_new_folder
from bertwright.core.statistics import Estimate, estimate
from bertwright.models.text_model import TextModel
from bertwright.runtime.compiler import compilation_failure, compilation_obstacle, is_compiler_error
from bertwright.runtime.process import configure_process
from bertwright.tasks.baselines.baseline import TaskBaseline
from bertwright.tasks.baselines.comparison import BaselineComparison, compare_with_baselines
from bertwright.tasks.baselines.fit_baselines import run_baselines
from bertwright.tasks.data.task_data import ExamplesOrFile, TaskData, load_tasks
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.data_warnings import run_warnings
from bertwright.tasks.finetuning.batching.encoded_task import (
    batch_samplers,
    positions_per_epoch,
)
from bertwright.tasks.finetuning.build_run import TaskDistillation, build_run
from bertwright.tasks.finetuning.config import FineTuningConfig, is_compilation_worthwhile
from bertwright.tasks.finetuning.evaluator import BestEpoch, EpochReport, flatten_scores
from bertwright.tasks.finetuning.result_folder import write_results
from bertwright.tasks.finetuning.run import FineTuningRun, ReporterFactory, no_reporter
from bertwright.tasks.task import Task
from bertwright.training.clock import Progress

SeedEvaluation = Callable[[BestEpoch], Mapping[str, float]]
"""Computes further metrics of the best models of a seed."""


@dataclass(frozen=True)
class FineTuningResult:
    """The result of fine-tuning: the best epoch of every seed, and the best of all.

    ``extra_metrics`` holds the results of ``evaluate_seed`` per seed; empty without it. The model
    of ``run`` has the parameters of the last seed.
    """

    tasks: Sequence[Task]
    seed_reports: Sequence[EpochReport]
    best: BestEpoch
    seconds: float
    run: FineTuningRun
    calibrations: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    extra_metrics: Sequence[Mapping[str, float]] = ()

    @property
    def task(self) -> Task:
        """The only task, or the first."""
        return self.tasks[0]

    @property
    def metric(self) -> str:
        """The name of the metric for model selection."""
        return self.task.metrics[0] if len(self.tasks) == 1 else "mean"

    @property
    def num_truncated(self) -> dict[str, int]:
        """Number of truncated training examples by task."""
        return {task.task.name: len(task.truncated_examples()) for task in self.run.encoded_tasks}

    @property
    def scores(self) -> list[float]:
        """The score of each seed."""
        return [report.score for report in self.seed_reports]

    @property
    def estimate(self) -> Estimate:
        """Mean and 95 % interval over the seeds."""
        return estimate(self.scores)

    @property
    def model(self) -> FineTunedModel:
        """The best model; with several tasks, the model of the first one."""
        return self.best.models[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``finetune --json``; deviation and interval need several seeds."""
        estimate = self.estimate
        metrics = [flatten_scores(report.scores) for report in self.seed_reports]
        return {
            "task": ", ".join(task.name for task in self.tasks),
            "metric": self.metric,
            "scores": self.scores,
            "mean": estimate.mean,
            "deviation": estimate.standard_deviation if len(metrics) > 1 else None,
            "interval": estimate.interval,
            "median": median(self.scores),
            "best": max(self.scores),
            **_seed_means("metrics", metrics),
            **_seed_means("extra_metrics", self.extra_metrics),
            "best_epochs": [report.epoch for report in self.seed_reports],
            "trained_fraction": self.run.trained_fraction(),
            **({"l2": l2} if (l2 := self._l2_by_task()) else {}),
            **self._comparison_as_dict(),
            **self._example_counts(),
            **({"calibration": c} if (c := self._calibration_as_dict()) else {}),
            **({"warnings": self.warnings} if self.warnings else {}),
            "seconds": self.seconds,
        }

    @cached_property
    def baselines(self) -> Sequence[Sequence[TaskBaseline]]:
        """The baselines of each task, fitted to its training examples."""
        baselines = [run_baselines(self.run, n) for n in range(len(self.run.encoded_tasks))]
        self.run.frozen_features.clear()  # may be most of the memory
        return baselines

    @cached_property
    def comparisons(self) -> Mapping[str, BaselineComparison]:
        """The best model compared with its baselines on held-out examples, by task."""
        return {
            task.task.name: compare_with_baselines(model, task.dev, predictions, baselines)
            for task, model, predictions, baselines in zip(
                self.run.encoded_tasks,
                self.best.models,
                self.best.predictions,
                self.baselines,
                strict=True,
            )
        }

    @cached_property
    def warnings(self) -> list[str]:
        """Sentences about limits of the scores, and about baselines that are as good."""
        verdicts = [comparison.verdict for comparison in self.comparisons.values()]
        return [*run_warnings(self.run), *(verdict for verdict in verdicts if verdict)]

    def _example_counts(self) -> dict[str, dict[str, int]]:
        """Return nonzero numbers of examples by kind and task."""
        tasks = self.run.encoded_tasks
        counts = {
            "truncated_examples": self.num_truncated,
            "unaligned_examples": {t.task.name: len(t.unaligned) for t in tasks},
            "overlapping_examples": {t.task.name: len(t.overlapping_examples) for t in tasks},
        }
        nonzero = {kind: {t: n for t, n in c.items() if n} for kind, c in counts.items()}
        return {kind: by_task for kind, by_task in nonzero.items() if by_task}

    def _l2_by_task(self) -> dict[str, list[float]]:
        """Return the L2 penalties of linear heads by task and seed."""
        fits = self.run.linear_fits
        return {task: [by_task[task].l2 for by_task in fits] for task in (fits[0] if fits else ())}

    def _comparison_as_dict(self) -> dict[str, Any]:
        by_task = {task: comparison.as_dict() for task, comparison in self.comparisons.items()}
        if len(by_task) == 1:
            return next(iter(by_task.values()))
        return {
            "examples": {task: entry["examples"] for task, entry in by_task.items()},
            "intervals": {task: entry["intervals"] for task, entry in by_task.items()},
            "baselines": [
                {"task": task, **line}
                for task, entry in by_task.items()
                for line in entry["baselines"]
            ],
        }

    def write(self, output: Path | str, extra_files: Mapping[str, str] | None = None) -> None:
        """Write the folder of the best model, with ``extra_files`` by name."""
        write_results(
            Path(output), self.as_dict(), self.run, self.best, self.baselines, extra_files or {}
        )

    def _calibration_as_dict(self) -> Mapping[str, Any]:
        by_task = self.calibrations
        return next(iter(by_task.values())) if len(self.tasks) == 1 and by_task else by_task


def finetune(
    model: TextModel,
    task: Task | str,
    data: Path | str | None = None,
    *,
    train: ExamplesOrFile | None = None,
    dev: ExamplesOrFile | None = None,
    output: Path | str | None = None,
    make_reporter: ReporterFactory = no_reporter,
    distillation: TaskDistillation | None = None,
    evaluate_seed: SeedEvaluation | None = None,
    **settings: Any,
) -> FineTuningResult:
    """Fine-tune a model for a task.

    ``data`` is a folder with a training and a development file. Alternatively, ``train`` and
    ``dev`` are files or examples; without ``dev`` a tenth of ``train`` is held out. ``settings``
    are fields of :class:`FineTuningConfig`. The best model is written to ``output``, with its
    held-out predictions in ``predictions.jsonl``, its errors in ``errors.jsonl``, and every epoch
    in ``metrics.jsonl``. The given model is not changed. ``distillation`` adds losses against a
    teacher. ``evaluate_seed`` computes further metrics of the best model of every seed.

    Errors: UserError for incompatible settings; Interrupted after a signal, before anything is
    written.
    """
    return finetune_tasks(
        model,
        [TaskData(task, data, train, dev)],
        output=output,
        make_reporter=make_reporter,
        distillation=distillation,
        evaluate_seed=evaluate_seed,
        **settings,
    )


def finetune_tasks(
    model: TextModel,
    task_data: Sequence[TaskData],
    *,
    output: Path | str | None = None,
    make_reporter: ReporterFactory = no_reporter,
    distillation: TaskDistillation | None = None,
    evaluate_seed: SeedEvaluation | None = None,
    **settings: Any,
) -> FineTuningResult:
    """Fine-tune one encoder for several tasks, each with its own head.

    Each step trains one of the tasks (MT-DNN, Liu et al. 2019). The arguments are those of
    :func:`finetune`, but ``output`` gets a model folder for each task.
    """
    start = time.monotonic()
    configure_process()
    config = FineTuningConfig.from_settings(settings)
    if output is not None:
        require_new_folder(Path(output))
    tasks = load_tasks(task_data)
    run = build_run(model, tasks, config, make_reporter, output, distillation)
    extra_metrics: list[Mapping[str, float]] = []

    def on_best(best: BestEpoch) -> None:
        if evaluate_seed is not None:
            extra_metrics.append(evaluate_seed(best))

    try:
        reports, best = run_seeds(run, on_best)
    except Exception as error:
        if config.compile is False or not is_compiler_error(error):
            raise
        message = f"{compilation_failure(error)}; training continues uncompiled"
        print(message, file=sys.stderr, flush=True)
        # Restart all seeds without compilation.
        config = config.model_copy(update={"compile": False})
        run = build_run(model, tasks, config, make_reporter, output, distillation)
        extra_metrics.clear()
        reports, best = run_seeds(run, on_best)
    result = FineTuningResult(
        [encoded_task.task for encoded_task in run.encoded_tasks],
        reports,
        best,
        time.monotonic() - start,
        run,
        _calibrate_models(run, best) if config.calibrate else {},
        extra_metrics,
    )
    if output is not None:
        result.write(output)
    return result


def run_seeds(
    run: FineTuningRun, on_best: Callable[[BestEpoch], None] = lambda best: None
) -> tuple[list[EpochReport], BestEpoch]:
    """Run every seed; return the report of each seed's best epoch, and the best epoch of all.

    ``on_best`` is called with the best epoch of each seed.
    """
    config, is_compiled = run.config, run.config.compile
    if is_compiled == "auto":
        settings = config.batch_size, config.seed, config.batching
        samplers = batch_samplers(run.encoded_tasks, *settings)
        num_positions = positions_per_epoch(run.encoded_tasks, samplers, config.batching)
        num_positions *= config.epochs * config.seeds
        parametrisation = run.model.parametrisation
        distillation = run.distillation_loss
        has_taps = distillation is not None and bool(distillation.taps(Progress(0, 0.0)))
        has_hooks = parametrisation is not None and parametrisation.has_inner_hooks
        is_compiled = not (
            run.model.adaptation.has_frozen_encoder or has_taps or has_hooks
        ) and is_compilation_worthwhile(run.model, num_positions)
    on_cpu = run.source.device.type == "cpu"
    if is_compiled and on_cpu and (obstacle := compilation_obstacle()) is not None:
        print(f"steps are not compiled: {obstacle}", file=sys.stderr, flush=True)
        is_compiled = False
    if is_compiled:
        run.model.compile_parts()
    reports: list[EpochReport] = []
    best: BestEpoch | None = None
    for seed in config.seed_range():
        seed_best = run.run_seed(seed, is_compiled=is_compiled)
        reports.append(seed_best.report)
        on_best(seed_best)
        if best is None or seed_best.score > best.score:
            best = seed_best
    assert best is not None, "there is at least one seed"
    return reports, best


def _calibrate_models(run: FineTuningRun, best: BestEpoch) -> dict[str, Mapping[str, float]]:
    """Calibrate the best models on held-out examples; return the measured values by task."""
    by_task = {
        task.task.name: model.calibrate(task.dev)
        for model, task in zip(best.models, run.encoded_tasks, strict=True)
    }
    return {name: metrics for name, metrics in by_task.items() if metrics}


def _seed_means(name: str, metrics: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the means of metrics and their values by seed; empty if there are none."""
    if not metrics:
        return {}
    by_seed = {metric: [values[metric] for values in metrics] for metric in metrics[0]}
    means = {metric: estimate(values).mean for metric, values in by_seed.items()}
    return {name: means, **({f"{name}_by_seed": by_seed} if len(metrics) > 1 else {})}
