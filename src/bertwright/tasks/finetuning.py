"""Fine-tuning: a pre-trained encoder and examples in, a model that solves the task out.

With several seeds the run is repeated, each with another head, order and dropout, because on small
tasks luck decides as much as the method (Dodge et al. 2020): what is reported is the mean with its
interval, and the model that is kept is the best on the held-out part.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import Field, ValidationError

from bertwright import machine
from bertwright.axes import Precision, Settings, explain
from bertwright.encoder.kernels.packed import bfloat16_is_fast
from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.model.text_model import TextModel
from bertwright.optimisers.adam import AdamW
from bertwright.randomness import Permutation, key
from bertwright.recipes import Recipe
from bertwright.statistics import Estimate, estimate
from bertwright.tasks.answers import NumberAnswers, answers_of, num_outputs, reference
from bertwright.tasks.bucketing import BatchPlan
from bertwright.tasks.catalogue import find_part, find_task
from bertwright.tasks.encoding import Examples, RowMaker
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.heads import HeadChoice, check_head, default_head
from bertwright.tasks.prediction import as_lines
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import TaskModel
from bertwright.tasks.task_training import Best, Training
from bertwright.training.clock import Clock
from bertwright.training.reporting import Reporter

HELD_OUT_SHARE = 0.1
"""Of the training examples, where there is no development part."""

COMPILE_SECONDS = 40.0
"""What the first compiled step takes, one graph for all shapes (2 cores, AMD Zen 4)."""

SAVED_SECONDS = 1.2e-8
"""By which a compiled step is faster than an eager one, for each number of the residual stream,
over all blocks; the same machine."""


class FineTuning(Settings):
    """How a task is learned.

    ``rate`` None takes 5e-5 times 768 over the width of the encoder: narrow models want larger
    steps (Turc et al. 2019). ``dropout`` takes the place of the recipe's everywhere. ``length``
    None takes what the encoder allows, 512 at most. ``batch`` is in rows.
    """

    epochs: int = Field(default=3, ge=1)
    rate: float | None = Field(default=None, gt=0)
    batch: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    decay: float = Field(default=0.01, ge=0)
    warmup: float = Field(default=0.1, ge=0, le=1)
    clip: float | None = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8)
    head: HeadChoice | None = None
    precision: Precision | None = None
    compile: Literal["auto", True, False] = "auto"
    seed: int = Field(default=0, ge=0)

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "FineTuning":
        """Checked settings; UserError that names what is wrong."""
        try:
            return FineTuning.model_validate(dict(settings))
        except ValidationError as error:
            raise explain(error, "finetune") from error


@dataclass(frozen=True)
class FineTuneResult:
    """What fine-tuning found: for every seed the best epoch; the best model of all."""

    task: Task
    runs: Sequence[Best]
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
    def best(self) -> Best:
        """The run of the seed with the best score; of equals the first."""
        return max(self.runs, key=lambda run: run.scores[self.metric])

    @property
    def model(self) -> FineTuned:
        """The model of the best run."""
        return self.best.model

    def as_dict(self) -> dict[str, Any]:
        """What ``finetune --json`` prints; the interval is null for a single seed."""
        found = self.estimate
        known = math.isfinite(found.low)
        return {
            "task": self.task.name,
            "metric": self.metric,
            "scores": self.scores,
            "mean": found.mean,
            "interval": [found.low, found.high] if known else None,
            "metrics": {
                name: estimate([run.scores[name] for run in self.runs]).mean
                for name in self.task.metrics
            },
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
    seeds: int = 1,
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
    training_examples, held_out = _parts(task, data, train, dev)
    task = task.gathered(training_examples)
    training, plans = _prepare(model, task, training_examples, held_out, chosen, seeds, watch, out)
    runs = [training.run(seed, plan) for seed, plan in plans.items()]
    result = FineTuneResult(task, runs, time.monotonic() - began)
    if out is not None:
        _write(Path(out), result, training, chosen)
    return result


def _prepare(
    model: TextModel,
    task: Task,
    train: Examples,
    dev: Examples,
    chosen: FineTuning,
    seeds: int,
    watch: Callable[[int, Clock], Reporter],
    out: Path | str | None,
) -> tuple[Training, dict[int, BatchPlan]]:
    """The parts of the runs, and the plan of every seed."""
    recipe = _with_dropout(model.model.recipe, chosen.dropout)
    head = chosen.head or default_head(recipe, task.answer)
    if wrong := check_head(head, task.answer, recipe.output):
        raise UserError(wrong)
    longest = model.model.encoder.longest
    if longest is not None and chosen.length is not None and chosen.length > longest:
        raise UserError(f"length {chosen.length}: this encoder takes {longest} pieces at most")
    maker = RowMaker.of(recipe, model.tokenizer, longest, chosen.length)
    rows = maker.rows(train)
    lengths = [len(row.pieces) for row in rows]
    net = TaskModel.empty(
        recipe, model.model.vocabulary_size, head, num_outputs(task), chosen.dropout
    ).to(model.device)
    plans = {
        seed: BatchPlan.of(lengths, chosen.batch, seed)
        for seed in range(chosen.seed, chosen.seed + seeds)
    }
    places = seeds * chosen.epochs * plans[chosen.seed].places_per_epoch
    compiled = _repays(net, places) if chosen.compile == "auto" else chosen.compile
    if compiled:
        net.encoder.compile_parts(dynamic=True)
    fast = model.device.type == "cuda" or bfloat16_is_fast()
    training = Training(
        source=model,
        net=net,
        task=task,
        train=train,
        dev=dev,
        rows=rows,
        length=maker.length,
        epochs=chosen.epochs,
        optimiser=AdamW(
            rate=chosen.rate or 5e-5 * 768 / recipe.encoder.width,
            decay=chosen.decay,
        ),
        warmup=chosen.warmup,
        clip=chosen.clip,
        precision=chosen.precision or ("bf16" if fast else "float32"),
        compiled=compiled,
        folder=Path() if out is None else Path(out).parent,
        answers=NumberAnswers.of(train) if task.answer == "number" else answers_of(task),
        watch=watch,
        epochs_seen=[],
    )
    return training, plans


def _repays(net: TaskModel, num_places: int) -> bool:
    """Whether compiled steps win back what compiling takes: foreseen, not measured, so that the
    same job is always computed in the same way."""
    numbers = num_places * len(net.encoder.blocks) * net.recipe.encoder.width
    return numbers * SAVED_SECONDS > COMPILE_SECONDS


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
    if any(reference(example) is None for example in held_out):
        raise UserError("the development part has examples without labels: they cannot be scored")
    return training, held_out


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


def _with_dropout(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with this dropout everywhere."""
    encoder = recipe.encoder
    mixer = encoder.mixer
    if "dropout" in type(mixer).model_fields:
        mixer = mixer.model_copy(update={"dropout": rate})
    changed = encoder.model_copy(update={"dropout": rate, "mixer": mixer})
    return recipe.model_copy(update={"encoder": changed})


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
        lines = as_lines(training.dev, result.best.predictions, with_references=True)
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
