"""Fine-tuning with packed, padded and bucketed batches: time of a step, and scores.

Padded and packed batches hold the same random examples. The three kinds of batches are timed in
processes of their own, in interleaved rounds. The difference of the losses is measured without
dropout, over the first steps.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, get_args

import torch

from benchmarks.embedding.compare import checkpoint_folder
from benchmarks.pretraining.bertwright_worker import StepTimerCallback
from bertwright.core.config import InferencePrecision
from bertwright.core.statistics import estimate, paired_difference
from bertwright.interop.loading import load
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.runtime.process import configure_process, default_device
from bertwright.tasks.catalogue import find_split_file, find_task
from bertwright.tasks.finetuning.batching.batches import TaskBatchSource
from bertwright.tasks.finetuning.batching.bucket_sampler import Batching
from bertwright.tasks.finetuning.batching.encoded_task import TaskSchedule, batch_samplers
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune, run_seeds
from bertwright.tasks.finetuning.run import FineTuningRun, TaskLosses
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.timing.interleaved import StepTimer, time_processes
from bertwright.training.clock import Progress

BATCHINGS: tuple[Batching, ...] = get_args(Batching)

NUM_COMPARED_STEPS = 20
"""Steps whose losses are compared."""

TIME_COLUMNS = {
    "model": "model",
    "batch_size": "batch size",
    **{f"{name}_fill": f"tokens per position, {name}" for name in BATCHINGS},
    **{f"{name}_speed": f"examples/s, {name}" for name in BATCHINGS},
    "against_padded": "packed, times padded",
    "against_buckets": "packed, times buckets",
    "loss_difference": "largest relative difference of a loss, packed from padded",
}
"""Columns of the table of times, by key."""

SCORE_COLUMNS = {
    "model": "model",
    "examples": "training examples",
    "metric": "metric",
    **dict(zip(BATCHINGS, BATCHINGS, strict=True)),
    "from_padded": "packed less padded [95 %]",
    "from_buckets": "packed less buckets [95 %]",
    "seeds": "seeds",
}
"""Columns of the table of scores, by key."""


@dataclass(frozen=True)
class Workload:
    """A task with its data, and the model to fine-tune: a folder, or a recipe for random weights.

    ``max_examples`` limits the training examples.
    """

    model: str
    task: str
    data: str
    batch_size: int
    is_compiled: bool = True
    max_examples: int | None = None

    def load_model(self, precision: InferencePrecision | None = None) -> TextModel:
        """Return the model; random ones have the tokenizer of the benchmark's checkpoint."""
        if Path(self.model).is_dir():
            return load(self.model, precision)
        tokenizer = load(checkpoint_folder()).tokenizer
        model = Model.build(Recipe.load(self.model), tokenizer.vocab_size, tokenizer)
        return TextModel(model, tokenizer, precision)

    def read(self, split: Any) -> tuple[Task, Examples]:
        """Return the task and the examples of a split."""
        task = find_task(self.task)
        file = find_split_file(Path(self.data), split, task.reader.file_keyword)
        return task, task.read_examples(file)

    def build(self, batching: Batching, **settings: Any) -> FineTuningRun:
        """Return a run with all training examples and hardly any held-out ones."""
        task, examples = self.read("train")
        examples = examples[: self.max_examples]
        config = FineTuningConfig.from_settings(
            {"batching": batching, "batch_size": self.batch_size, **settings}
        )
        data = [(task.with_labels_from(examples), examples, examples[:2])]
        return build_run(self.load_model(), data, config)


def compare_times(
    workloads: Sequence[Workload], num_steps: int, num_rounds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the speed of the three kinds of batches for every workload."""
    results: list[dict[str, Any]] = []
    for workload in workloads:
        row: dict[str, Any] = {
            "model": _model_name(workload.model),
            "batch_size": workload.batch_size,
            "loss_difference": loss_difference(workload),
        }
        row |= {f"{name}_fill": fill for name, fill in fill_rates(workload).items()}
        programs = [(__name__, {**vars(workload), "batching": name}) for name in BATCHINGS]
        times = time_processes(programs, num_steps, num_rounds)
        seconds = dict(zip(BATCHINGS, map(median, times), strict=True))
        row |= {f"{name}_speed": workload.batch_size / s for name, s in seconds.items()}
        row["against_padded"] = seconds["padded"] / seconds["packed"]
        row["against_buckets"] = seconds["buckets"] / seconds["packed"]
        log(f"{row['model']}, batch size {workload.batch_size}: {seconds}")
        results.append(row)
    return results


def compare_scores(
    workload: Workload, num_seeds: int, settings: Mapping[str, Any], log: Callable[[str], None]
) -> dict[str, Any]:
    """Return the scores of the three kinds of batches over seeds."""
    task, train = workload.read("train")
    train, dev = train[: workload.max_examples], workload.read("dev")[1]
    scores: dict[str, list[float]] = {name: [] for name in BATCHINGS}
    for seed in range(num_seeds):
        for name in BATCHINGS:
            result = finetune(
                workload.load_model(),
                task,
                train=train,
                dev=dev,
                batch_size=workload.batch_size,
                batching=name,
                seed=seed,
                **settings,
            )
            scores[name].append(result.scores[0])
            log(f"seed {seed}, {name}: {result.scores[0]:.4f}")
    return {
        "model": _model_name(workload.model),
        "examples": len(train),
        "metric": task.metrics[0],
        **{name: str(estimate(values)) for name, values in scores.items()},
        "from_padded": str(paired_difference(scores["packed"], scores["padded"])),
        "from_buckets": str(paired_difference(scores["packed"], scores["buckets"])),
        "seeds": num_seeds,
    }


def fill_rates(workload: Workload) -> dict[Batching, float]:
    """Return the tokens per computed position in an epoch of each kind of batches."""
    rates: dict[Batching, float] = {}
    for batching in BATCHINGS:
        run = workload.build(batching)
        source, schedule = _batch_source(run)
        num_tokens = num_positions = 0
        for step in range(schedule.steps_per_epoch):
            for batch in source.at(Progress(step, 0.0)).micro_batches:
                documents, packing = batch.token_info.document_ids, batch.packing
                assert documents is not None
                num_tokens += int((documents >= 0).sum())
                rows = documents if packing is None else packing.sources
                num_positions += rows.numel()
        rates[batching] = num_tokens / num_positions
    return rates


@torch.no_grad()
def loss_difference(workload: Workload) -> float:
    """Return the largest relative difference of the loss between packed and padded batches."""
    by_batching: dict[str, list[float]] = {}
    for batching in ("packed", "padded"):
        run = workload.build(batching, dropout=0.0, precision="float32")
        run.init_parameters(0)
        source, schedule = _batch_source(run)
        losses = TaskLosses(run, 0, None)
        by_batching[batching] = [
            float(sum(loss.sum for loss in losses(batch, progress).values()))
            for progress in (
                Progress(n, 0.0) for n in range(min(NUM_COMPARED_STEPS, schedule.steps_per_epoch))
            )
            for batch in source.at(progress).micro_batches
        ]
    pairs = zip(by_batching["packed"], by_batching["padded"], strict=True)
    return max(abs(packed - padded) / padded for packed, padded in pairs)


def _batch_source(run: FineTuningRun) -> tuple[TaskBatchSource, TaskSchedule]:
    config = run.config
    samplers = batch_samplers(run.encoded_tasks, config.batch_size, 0, config.batching)
    schedule = TaskSchedule.from_samplers(samplers, 1.0, 0)
    source = TaskBatchSource(
        run.source,
        run.encoded_tasks,
        samplers,
        schedule,
        run.used_vocabulary,
        is_packed=config.batching == "packed",
    )
    return source, schedule


def _model_name(model: str) -> str:
    return "MiniLM" if model == str(checkpoint_folder()) else Path(model).name


def main() -> None:
    """Run a worker: ``python -m benchmarks.packing '{"model": ..., "batching": "packed"}'``."""
    configure_process()
    settings = json.loads(sys.argv[1])
    batching = settings.pop("batching")
    timer = StepTimer.from_standard_streams(default_device().type)
    timer.has_mixed_steps = True
    workload = Workload(**settings)
    run = workload.build(batching, epochs=1_000_000, compile=workload.is_compiled)
    run_seeds(replace(run, callbacks=[StepTimerCallback(timer)]))


if __name__ == "__main__":
    main()
