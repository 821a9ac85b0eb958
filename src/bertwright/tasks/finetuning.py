"""Fine-tuning: a pre-trained encoder and examples in, a model that solves the task out.

With several seeds the run is repeated, each with another head, order and dropout, because on small
tasks luck decides as much as the method (Dodge et al. 2020): what is reported is the mean with its
interval, and the model that is kept is the best on the held-out part.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.files import require_free
from bertwright.machine.compiler import compilation_obstacle, obstacle_of, raised_by_compiler
from bertwright.model.text_model import TextModel
from bertwright.statistics import Estimate, estimate
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.baselines.baseline import Baseline
from bertwright.tasks.baselines.comparing import Comparison, compare_with_baselines
from bertwright.tasks.baselines.fitting import part_baselines
from bertwright.tasks.data import Given, TaskData, parts_of
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning, repays
from bertwright.tasks.judging import Best, EpochReport, figures_of
from bertwright.tasks.linear_heads import LinearFit
from bertwright.tasks.parts import Turns, places_per_epoch, plans_of
from bertwright.tasks.result_folder import write_results
from bertwright.tasks.run_warnings import run_warnings
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Training, Watch, unwatched
from bertwright.tasks.teaching import Teacher

Each = Callable[[Best], Mapping[str, float]]
"""What else is found of the best models of a seed."""


@dataclass(frozen=True)
class FineTuneResult:
    """What fine-tuning found: for every seed how its best epoch ended, and the best of all.

    ``further`` is what else was asked of the best model of every seed, equally many or none.
    ``training`` is what the runs were made of; its network has the parameters of the last.
    """

    tasks: Sequence[Task]
    runs: Sequence[EpochReport]
    best: Best
    seconds: float
    training: Training
    settings: FineTuning
    calibrations: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    further: Sequence[Mapping[str, float]] = ()

    @property
    def task(self) -> Task:
        """The only task, or the first."""
        return self.tasks[0]

    @property
    def metric(self) -> str:
        """The metric that chooses, by name."""
        return self.task.metrics[0] if len(self.tasks) == 1 else "mean"

    @property
    def cut(self) -> dict[str, int]:
        """Of each task, how many training examples lost pieces because no row is long enough."""
        return {part.task.name: len(part.cut()) for part in self.training.parts}

    @property
    def unplaced(self) -> dict[str, int]:
        """Of each task, how many training examples have an answer that no token stands for."""
        return {part.task.name: len(part.unplaced) for part in self.training.parts}

    @property
    def seen(self) -> dict[str, int]:
        """Of each task, how many of the examples that judge read like one that is learned from."""
        return {part.task.name: len(part.seen) for part in self.training.parts}

    @property
    def scores(self) -> list[float]:
        """Of the metric, one for each seed."""
        return [run.score for run in self.runs]

    @property
    def estimate(self) -> Estimate:
        """Mean and 95 % interval over the seeds."""
        return estimate(self.scores)

    @property
    def model(self) -> FineTuned:
        """The best model, of the first task where there are several."""
        return self.best.models[0]

    def as_dict(self) -> dict[str, Any]:
        """What ``finetune --json`` prints; deviation and interval are null for a single seed."""
        found = self.estimate
        figures = [figures_of(run.scores) for run in self.runs]
        several = len(self.runs) > 1
        return {
            "task": ", ".join(task.name for task in self.tasks),
            "metric": self.metric,
            "scores": self.scores,
            "mean": found.mean,
            "deviation": found.deviation if several else None,
            "interval": found.interval,
            "median": median(self.scores),
            "best": max(self.scores),
            **_of_seeds("metrics", figures),
            **_of_seeds("further", self.further),
            "best_epochs": [run.epoch for run in self.runs],
            "trained_share": self.training.trained_share(),
            **_l2(self.training.fits),
            **self._compared(),
            **_told("cut_examples", self.cut),
            **_told("unplaced_examples", self.unplaced),
            **_told("seen_examples", self.seen),
            **({"calibration": c} if (c := self._calibration()) else {}),
            **({"warnings": self.warnings} if self.warnings else {}),
            "seconds": self.seconds,
        }

    @cached_property
    def baselines(self) -> Sequence[Sequence[Baseline]]:
        """Of each task what its training examples make of something simple."""
        found = [part_baselines(self.training, n) for n in range(len(self.training.parts))]
        self.training.kept_states.clear()  # which may be most of the memory
        return found

    @cached_property
    def comparisons(self) -> Mapping[str, Comparison]:
        """Of each task the best model beside its baselines, on what is held out."""
        return {
            part.task.name: compare_with_baselines(model, part.dev, predictions, baselines)
            for part, model, predictions, baselines in zip(
                self.training.parts,
                self.best.models,
                self.best.predictions,
                self.baselines,
                strict=True,
            )
        }

    @cached_property
    def warnings(self) -> list[str]:
        """What limits the scores, a sentence each, and where a baseline is as good."""
        verdicts = [comparison.verdict for comparison in self.comparisons.values()]
        return [*run_warnings(self.training), *(verdict for verdict in verdicts if verdict)]

    def _compared(self) -> dict[str, Any]:
        found = {task: comparison.as_dict() for task, comparison in self.comparisons.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        lines = [{"task": task, **line} for task, of in found.items() for line in of["baselines"]]
        return {
            "examples": {task: of["examples"] for task, of in found.items()},
            "intervals": {task: of["intervals"] for task, of in found.items()},
            "baselines": lines,
        }

    def write(self, out: Path | str, more: Mapping[str, str] | None = None) -> None:
        """Write the folder of the best model, with ``more`` files by name."""
        write_results(
            Path(out),
            self.as_dict(),
            self.training,
            self.best,
            self.baselines,
            self.settings,
            more or {},
        )

    def _calibration(self) -> Mapping[str, Any]:
        named = self.calibrations
        return next(iter(named.values())) if len(self.tasks) == 1 and named else named


def finetune(
    model: TextModel,
    task: Task | str,
    data: Path | str | None = None,
    *,
    train: Given | None = None,
    dev: Given | None = None,
    out: Path | str | None = None,
    watch: Watch = unwatched,
    teacher: Teacher | None = None,
    each: Each | None = None,
    **settings: Any,
) -> FineTuneResult:
    """Fine-tune a model for a task.

    ``data`` is a folder with a training and a development file; or ``train`` and ``dev`` are files
    or examples, and without ``dev`` a tenth of ``train`` is held out. ``settings`` are those of
    :class:`FineTuning`. The best model is written to ``out``, with its answers to the held-out part
    in ``predictions.jsonl``, what is wrong of them in ``errors.jsonl``, and every epoch in
    ``metrics.jsonl``. The given model stays as it is. A ``teacher`` is learned from beside the
    labels. ``each`` is asked of the best of every seed, and the means of what it finds are told as
    ``further``.

    Errors: UserError for what does not fit together; Interrupted after a signal, nothing written.
    """
    return finetune_together(
        model,
        [TaskData(task, data, train, dev)],
        out=out,
        watch=watch,
        teacher=teacher,
        each=each,
        **settings,
    )


def finetune_together(
    model: TextModel,
    several: Sequence[TaskData],
    *,
    out: Path | str | None = None,
    watch: Watch = unwatched,
    teacher: Teacher | None = None,
    each: Each | None = None,
    **settings: Any,
) -> FineTuneResult:
    """Fine-tune one encoder for several tasks at once, each with a head of its own; a step trains
    one of them (Liu et al. 2019, MT-DNN). As :func:`finetune`, but for ``out``, which holds a model
    folder for each task."""
    began = time.monotonic()
    chosen = FineTuning.of(settings)
    if out is not None:
        require_free(Path(out))
    given = parts_of(several)
    training = prepare_training(model, given, chosen, watch, out, teacher)
    further: list[Mapping[str, float]] = []

    def heard(best: Best) -> None:
        if each is not None:
            further.append(each(best))

    try:
        runs, best = with_every_seed(training, chosen, heard)
    except Exception as error:
        if chosen.compile is False or not raised_by_compiler(error):
            raise
        print(f"{obstacle_of(error)}; training goes on uncompiled", file=sys.stderr, flush=True)
        # A network that is not compiled, and the same seeds once more.
        chosen = chosen.model_copy(update={"compile": False})
        training = prepare_training(model, given, chosen, watch, out, teacher)
        further.clear()
        runs, best = with_every_seed(training, chosen, heard)
    result = FineTuneResult(
        [part.task for part in training.parts],
        runs,
        best,
        time.monotonic() - began,
        training,
        chosen,
        _settled(training, best) if chosen.calibrate else {},
        further,
    )
    if out is not None:
        result.write(out)
    return result


def with_every_seed(
    training: Training, chosen: FineTuning, then: Callable[[Best], None] = lambda best: None
) -> tuple[list[EpochReport], Best]:
    """The best epoch of every run, ``then`` what is asked of it, and the best of these."""
    compiled = chosen.compile
    if compiled == "auto":
        plans = plans_of(training.parts, chosen.batch, chosen.seed)
        places = places_per_epoch(training.parts, plans) * chosen.epochs * chosen.seeds
        kept = training.net.adaptation.keeps_states
        changes = training.net.changes
        heard = training.teaching is not None and training.teaching.sites
        inside = heard or (changes is not None and changes.looks_inside)
        compiled = not (kept or inside) and repays(training.net, places)
    on_cpu = training.source.device.type == "cpu"
    if compiled and on_cpu and (obstacle := compilation_obstacle()) is not None:
        print(f"steps are not compiled: {obstacle}", file=sys.stderr, flush=True)
        compiled = False
    if compiled:
        training.net.encoder.compile_parts(dynamic=True)
    runs: list[EpochReport] = []
    best: Best | None = None
    for seed in chosen.seeds_in_turn():
        plans = plans_of(training.parts, chosen.batch, seed)
        found = training.run(plans, Turns.of(plans, chosen.share_power, seed), compiled)
        runs.append(found.report)
        then(found)
        if best is None or found.score > best.score:
            best = found
    assert best is not None, "there is at least one seed"
    return runs, best


def _settled(training: Training, best: Best) -> dict[str, Mapping[str, float]]:
    """What the held-out part says of how each of the best models should answer; they do."""
    found = {
        part.task.name: model.settle(part.dev)
        for model, part in zip(best.models, training.parts, strict=True)
    }
    return {name: figures for name, figures in found.items() if figures}


def _told(name: str, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Numbers of examples of each task, where there are any."""
    some = {task: number for task, number in numbers.items() if number}
    return {name: some} if some else {}


def _l2(fits: Sequence[Mapping[str, LinearFit]]) -> dict[str, Any]:
    """The penalty of linear heads that were fitted to convergence, by task and seed."""
    return {"l2": {task: [of[task].l2 for of in fits] for task in fits[0]}} if fits else {}


def _of_seeds(name: str, figures: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The means of figures, where there are any; and of several seeds those of each."""
    if not figures:
        return {}
    by_seed = {figure: [each[figure] for each in figures] for figure in figures[0]}
    means = {figure: estimate(values).mean for figure, values in by_seed.items()}
    return {name: means, **({f"{name}_by_seed": by_seed} if len(figures) > 1 else {})}
