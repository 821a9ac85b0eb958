"""Fine-tuning: a pre-trained encoder and examples in, a model that solves the task out.

With several seeds the run is repeated, each with another head, order and dropout, because on small
tasks luck decides as much as the method (Dodge et al. 2020): what is reported is the mean with its
interval, and the model that is kept is the best on the held-out part.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertwright import machine
from bertwright.axes import did_you_mean
from bertwright.encoder.kernels.packed import bfloat16_is_fast
from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.model.text_model import TextModel
from bertwright.optimisers.adam import AdamW
from bertwright.randomness import Permutation, key
from bertwright.statistics import Estimate, estimate
from bertwright.tasks.answers import NumberAnswers, answers_of, num_outputs
from bertwright.tasks.bucketing import BatchPlan
from bertwright.tasks.catalogue import find_part, find_task
from bertwright.tasks.encoding import Examples, RowMaker
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning, repays, with_dropout
from bertwright.tasks.heads import check_head, default_head
from bertwright.tasks.prediction import as_lines
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import TaskModel
from bertwright.tasks.task_training import Best, EpochReport, Training
from bertwright.training.clock import Clock
from bertwright.training.compilation import of_the_compiler
from bertwright.training.reporting import Reporter

HELD_OUT_SHARE = 0.1
"""Of the training examples, where there is no development part."""


@dataclass(frozen=True)
class FineTuneResult:
    """What fine-tuning found: for every seed how its best epoch ended, and the best of all."""

    task: Task
    runs: Sequence[EpochReport]
    best: Best
    seconds: float

    @property
    def metric(self) -> str:
        """The metric that chooses, by name."""
        return self.task.metrics[0]

    @property
    def scores(self) -> list[float]:
        """Of the metric, one for each seed."""
        return [run.scores[self.metric] for run in self.runs]

    @property
    def estimate(self) -> Estimate:
        """Mean and 95 % interval over the seeds."""
        return estimate(self.scores)

    @property
    def model(self) -> FineTuned:
        """The best model."""
        return self.best.model

    def as_dict(self) -> dict[str, Any]:
        """What ``finetune --json`` prints; the interval is null for a single seed."""
        found = self.estimate
        means = {n: estimate([run.scores[n] for run in self.runs]).mean for n in self.task.metrics}
        return {
            "task": self.task.name,
            "metric": self.metric,
            "scores": self.scores,
            "mean": found.mean,
            "interval": found.interval,
            "metrics": means,
            "best_epochs": [run.epoch for run in self.runs],
            "seconds": self.seconds,
        }


def finetune(
    model: TextModel,
    task: Task | str,
    data: Path | str | None = None,
    *,
    train: Examples | Path | str | None = None,
    dev: Examples | Path | str | None = None,
    out: Path | str | None = None,
    watch: Callable[[int, Clock], Reporter] = lambda seed, clock: Reporter(),
    **settings: Any,
) -> FineTuneResult:
    """Fine-tune a model for a task.

    ``data`` is a folder with a training and a development file; or ``train`` and ``dev`` are files
    or examples, and without ``dev`` a tenth of ``train`` is held out. ``settings`` are those of
    :class:`FineTuning`. The best model is written to ``out``, with its answers to the held-out part
    in ``predictions.jsonl`` and every epoch in ``metrics.jsonl``. The given model stays as it is.
    ``watch`` makes what follows the run of a seed, from its clock.

    Errors: UserError for what does not fit together; Interrupted after a signal, nothing written.
    """
    began = time.monotonic()
    chosen = FineTuning.of(settings)
    if out is not None:
        require_free(Path(out))
    task = find_task(task) if isinstance(task, str) else task
    examples, held_out = _parts(task, data, train, dev)
    task = task.gathered(examples)
    _check_labels(task, examples, held_out)
    training = _prepare(model, task, examples, held_out, chosen, watch, out)
    try:
        runs, best = _with_every_seed(training, chosen)
    except Exception as error:
        if chosen.compile is False or not of_the_compiler(error):
            raise
        # A network that is not compiled, and the same seeds once more.
        chosen = chosen.model_copy(update={"compile": False})
        training = _prepare(model, task, examples, held_out, chosen, watch, out)
        runs, best = _with_every_seed(training, chosen)
    result = FineTuneResult(task, runs, best, time.monotonic() - began)
    if out is not None:
        _write(Path(out), result, training, chosen)
    return result


def _with_every_seed(training: Training, chosen: FineTuning) -> tuple[list[EpochReport], Best]:
    """The best epoch of every run, and the best of these with its model."""
    plan = BatchPlan.of([len(row.pieces) for row in training.rows], chosen.batch)
    compiled = chosen.compile
    if compiled == "auto":
        places = plan.places_per_epoch * chosen.epochs * chosen.seeds
        compiled = repays(training.net, places)
    if compiled:
        training.net.encoder.compile_parts(dynamic=True)
    runs: list[EpochReport] = []
    best: Best | None = None
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        found = training.run(replace(plan, seed=seed), compiled)
        runs.append(found.report)
        if best is None or found.score > best.score:
            best = found
    assert best is not None, "there is at least one seed"
    return runs, best


def _prepare(
    model: TextModel,
    task: Task,
    train: Examples,
    dev: Examples,
    chosen: FineTuning,
    watch: Callable[[int, Clock], Reporter],
    out: Path | str | None,
) -> Training:
    """The parts of the runs."""
    recipe = with_dropout(model.model.recipe, chosen.dropout)
    head = chosen.head or default_head(recipe, task.answer)
    if wrong := check_head(head, task.answer, recipe.output):
        raise UserError(wrong)
    by_level = chosen.layer_decay < 1.0 or chosen.unfreeze == "gradual"
    if by_level and recipe.encoder.depth.sharing != "none":
        raise UserError(
            "blocks that share their parameters are one level: leave out layer_decay and unfreeze"
        )
    longest = model.model.encoder.longest
    if longest is not None and chosen.length is not None and chosen.length > longest:
        raise UserError(f"length {chosen.length}: this encoder takes {longest} pieces at most")
    maker = RowMaker.of(recipe, model.tokenizer, longest, chosen.length)
    size = model.model.vocabulary_size
    net = TaskModel.empty(recipe, size, head, num_outputs(task), chosen.dropout)
    fast = model.device.type == "cuda" or bfloat16_is_fast()
    return Training(
        source=model,
        net=net.to(model.device),
        task=task,
        train=train,
        dev=dev,
        rows=maker.rows(train),
        length=maker.length,
        epochs=chosen.epochs,
        optimiser=AdamW(
            rate=chosen.rate_for(recipe), decay=chosen.decay, layer_decay=chosen.layer_decay
        ),
        gradual=chosen.unfreeze == "gradual",
        warmup=chosen.warmup,
        clip=chosen.clip,
        precision=chosen.precision or ("bf16" if fast else "float32"),
        answers=NumberAnswers.of(train) if task.answer == "number" else answers_of(task),
        folder=Path() if out is None else Path(out).parent,
        watch=watch,
    )


def _parts(
    task: Task,
    data: Path | str | None,
    train: Examples | Path | str | None,
    dev: Examples | Path | str | None,
) -> tuple[Examples, Examples]:
    """The training examples and those that judge."""
    if data is not None:
        train = train or find_part(Path(data), "train")
        dev = dev or find_part(Path(data), "dev")
    if train is None:
        raise UserError("finetune needs --data DIR, or --train FILE")
    training = task.read(Path(train)) if isinstance(train, str | Path) else train
    if dev is None:
        return _held_out(training)
    held_out = task.read(Path(dev)) if isinstance(dev, str | Path) else dev
    return training, held_out


def _check_labels(task: Task, train: Examples, dev: Examples) -> None:
    """Refuse examples that cannot be learned from, or judged by."""
    for part, examples in (("training", train), ("development", dev)):
        if any(task.reference(example) is None for example in examples):
            raise UserError(f"the {part} part has examples without labels")
    if task.answer == "number":
        return
    if odd := sorted(task.labels_of(train) - set(task.labels)):
        raise UserError(
            f"task {task.name} has no label {odd[0]!r}{did_you_mean(odd[0], task.labels)}"
        )


def _held_out(examples: Examples) -> tuple[Examples, Examples]:
    """Training examples, and a tenth of them that is held out, the same whatever the seed."""
    count = max(1, round(HELD_OUT_SHARE * len(examples)))
    if len(examples) <= count:
        raise UserError("one example is not enough to train and to judge: give more, or --dev FILE")
    place = Permutation(len(examples), key(0, "finetuning", "held-out"))(np.arange(len(examples)))
    chosen = [
        [e for e, p in zip(examples, place, strict=True) if (p < count) == held]
        for held in (False, True)
    ]
    return cast(tuple[Examples, Examples], tuple(chosen))


def _write(
    out: Path,
    result: FineTuneResult,
    training: Training,
    chosen: FineTuning,
) -> None:
    """The folder of the best model."""
    about = {
        **result.as_dict(),
        "from": training.net.recipe.name,
        "training_examples": len(training.train),
        "held_out_examples": len(training.dev),
        "settings": chosen.model_dump(mode="json") | {"rate": training.optimiser.rate},
        "versions": machine.versions("torch", "bertwright"),
    }
    with atomic_folder(out) as folder:
        lines = as_lines(training.dev, result.best.predictions, training.task)
        _write_lines(folder / "predictions.jsonl", lines)
        _write_lines(
            folder / "metrics.jsonl",
            (
                {"seed": e.seed, "epoch": e.epoch, "loss": e.loss, **e.scores}
                for e in training.epochs_seen
            ),
        )
        result.model.save(folder, about)


def _write_lines(file: Path, lines: Any) -> None:
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
