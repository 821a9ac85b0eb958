"""Fine-tuning: a pre-trained encoder and examples in, a model that solves the task out.

With several seeds the run is repeated, each with another head, order and dropout, because on small
tasks luck decides as much as the method (Dodge et al. 2020): what is reported is the mean with its
interval, and the model that is kept is the best on the held-out part.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.encoder.kernels.packed import bfloat16_is_fast
from bertwright.errors import UserError
from bertwright.files import require_free
from bertwright.model.text_model import TextModel
from bertwright.optimisers.adam import AdamW
from bertwright.schedules import Warmup
from bertwright.statistics import Estimate, estimate
from bertwright.tasks.data import Given, TaskData, parts_of
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning, repays, with_dropout
from bertwright.tasks.heads import check_head, default_head
from bertwright.tasks.judging import Best, EpochReport, figures_of
from bertwright.tasks.language_model import check_language_model
from bertwright.tasks.parts import Part, Turns, places_per_epoch, plans_of
from bertwright.tasks.result_folder import write_results
from bertwright.tasks.seen_pieces import SeenPieces
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import Adapted, HeadPlan
from bertwright.tasks.task_training import Training
from bertwright.training.clock import Clock
from bertwright.training.compilation import of_the_compiler
from bertwright.training.reporting import Reporter

Watch = Callable[[int, Clock], Reporter]
"""Makes what follows the run of a seed, from its clock."""


def unwatched(seed: int, clock: Clock) -> Reporter:
    """Nothing follows."""
    return Reporter()


@dataclass(frozen=True)
class FineTuneResult:
    """What fine-tuning found: for every seed how its best epoch ended, and the best of all.

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
        means = {name: estimate([each[name] for each in figures]).mean for name in figures[0]}
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
            "metrics": means,
            "best_epochs": [run.epoch for run in self.runs],
            "trained_share": self.training.trained_share(),
            **({"cut_examples": cut} if (cut := {n: c for n, c in self.cut.items() if c}) else {}),
            **({"calibration": c} if (c := self._calibration()) else {}),
            "seconds": self.seconds,
        }

    def write(self, out: Path | str, more: Mapping[str, str] | None = None) -> None:
        """Write the folder of the best model, with ``more`` files by name."""
        write_results(
            Path(out), self.as_dict(), self.training, self.best, self.settings, more or {}
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
    **settings: Any,
) -> FineTuneResult:
    """Fine-tune a model for a task.

    ``data`` is a folder with a training and a development file; or ``train`` and ``dev`` are files
    or examples, and without ``dev`` a tenth of ``train`` is held out. ``settings`` are those of
    :class:`FineTuning`. The best model is written to ``out``, with its answers to the held-out part
    in ``predictions.jsonl``, what is wrong of them in ``errors.jsonl``, and every epoch in
    ``metrics.jsonl``. The given model stays as it is.

    Errors: UserError for what does not fit together; Interrupted after a signal, nothing written.
    """
    return finetune_together(
        model, [TaskData(task, data, train, dev)], out=out, watch=watch, **settings
    )


def finetune_together(
    model: TextModel,
    several: Sequence[TaskData],
    *,
    out: Path | str | None = None,
    watch: Watch = unwatched,
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
    training = prepare_training(model, given, chosen, watch, out)
    try:
        runs, best = with_every_seed(training, chosen)
    except Exception as error:
        if chosen.compile is False or not of_the_compiler(error):
            raise
        # A network that is not compiled, and the same seeds once more.
        chosen = chosen.model_copy(update={"compile": False})
        training = prepare_training(model, given, chosen, watch, out)
        runs, best = with_every_seed(training, chosen)
    result = FineTuneResult(
        [part.task for part in training.parts],
        runs,
        best,
        time.monotonic() - began,
        training,
        chosen,
        _settled(training, best) if chosen.calibrate else {},
    )
    if out is not None:
        result.write(out)
    return result


def with_every_seed(training: Training, chosen: FineTuning) -> tuple[list[EpochReport], Best]:
    """The best epoch of every run, and the best of these with its models."""
    compiled = chosen.compile
    if compiled == "auto":
        plans = plans_of(training.parts, chosen.batch, chosen.seed)
        places = places_per_epoch(training.parts, plans) * chosen.epochs * chosen.seeds
        kept = training.net.adaptation.keeps_states
        compiled = not kept and repays(training.net, places)
    if compiled:
        training.net.encoder.compile_parts(dynamic=True)
    runs: list[EpochReport] = []
    best: Best | None = None
    for seed in chosen.seeds_in_turn():
        plans = plans_of(training.parts, chosen.batch, seed)
        found = training.run(plans, Turns.of(plans, chosen.share_power, seed), compiled)
        runs.append(found.report)
        if best is None or found.score > best.score:
            best = found
    assert best is not None, "there is at least one seed"
    return runs, best


def prepare_training(
    model: TextModel,
    given: Sequence[tuple[Task, Any, Any]],
    chosen: FineTuning,
    watch: Watch,
    out: Path | str | None,
) -> Training:
    """What the runs of all seeds share."""
    recipe = with_dropout(model.model.recipe, chosen.dropout)
    _check(model, chosen, given)
    longest = model.model.encoder.longest
    maker = RowMaker.of(recipe, model.tokenizer, longest, chosen.length)
    parts = [Part.of(task, train, dev, maker) for task, train, dev in given]
    plans = [
        HeadPlan(
            chosen.head or default_head(recipe, p.task.answer),
            p.answering.num_outputs,
            p.task.answer.name,
        )
        for p in parts
    ]
    for part, plan in zip(parts, plans, strict=True):
        if wrong := check_head(plan.choice, part.task.answer, recipe.output):
            raise UserError(wrong)
    size = model.model.vocabulary_size
    beside = chosen.language_model > 0
    if beside and (wrong := check_language_model(model, chosen, [plan.choice for plan in plans])):
        raise UserError(wrong)
    seen = None
    if not (beside or chosen.adaptation.adds):
        seen = SeenPieces.of(model.model.encoder, parts, model.tokenizer.specials.pad)
    num_rows = None if seen is None else len(seen.kept)
    net = Adapted.empty(recipe, size, plans, chosen.adaptation, chosen.dropout, beside, num_rows)
    fast = model.device.type == "cuda" or bfloat16_is_fast()
    return Training(
        source=model,
        net=net.to(model.device),
        parts=parts,
        length=maker.length,
        epochs=chosen.epochs,
        patience=chosen.patience,
        optimiser=AdamW(
            rate=chosen.rate_for(recipe),
            decay=chosen.decay,
            layer_decay=chosen.adaptation.decay_by_level,
            bias_correction=chosen.bias_correction,
        ),
        schedule=chosen.schedule or Warmup(warmup=chosen.warmup),
        clip=chosen.clip,
        precision=chosen.precision or ("bf16" if fast else "float32"),
        perturbation=chosen.perturbation,
        language_model=chosen.language_model,
        folder=Path() if out is None else Path(out).parent,
        seen=seen,
        watch=watch,
    )


def _check(model: TextModel, chosen: FineTuning, given: Sequence[tuple[Task, Any, Any]]) -> None:
    """Refuse what does not go together."""
    model.require_words("finetune")
    recipe, longest = model.model.recipe, model.model.encoder.longest
    if wrong := chosen.adaptation.check(recipe):
        raise UserError(wrong)
    if longest is not None and chosen.length is not None and chosen.length > longest:
        raise UserError(f"length {chosen.length}: this encoder takes {longest} pieces at most")
    if chosen.perturbation is None:
        return
    if chosen.adaptation.keeps_states:
        raise UserError("perturbation: the encoder stays as it is: choose another adaptation")
    for task, _, _ in given:
        if wrong := chosen.perturbation.check(task.answer.name):
            raise UserError(wrong)


def _settled(training: Training, best: Best) -> dict[str, Mapping[str, float]]:
    """What the held-out part says of how each of the best models should answer; they do."""
    found = {
        part.task.name: model.settle(part.dev)
        for model, part in zip(best.models, training.parts, strict=True)
    }
    return {name: figures for name, figures in found.items() if figures}
