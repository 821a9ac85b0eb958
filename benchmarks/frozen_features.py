"""Heads on frozen features of few examples, against scikit-learn, TF-IDF and a constant prediction.

The features of a text are computed once for all runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from benchmarks.embedding.compare import checkpoint_folder
from benchmarks.result_store import ResultStore
from bertwright.core.config import Precision
from bertwright.core.statistics import estimate, paired_difference
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel
from bertwright.tasks.baselines.fit_baselines import run_baselines
from bertwright.tasks.catalogue import find_split_file, find_task, table_task
from bertwright.tasks.data.splits import stratified_order
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import run_seeds
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.finetuning.run import FineTuningRun
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.multi_task_model import MultiTaskModel
from bertwright.tasks.outputs import FloatArray, Prediction
from bertwright.tasks.task import Task

Log = Callable[[str], None]

COLUMNS = {
    "task": "task",
    "examples": "training examples",
    "metric": "metric",
    "constant": "most frequent class, or mean",
    "words": "TF-IDF, linear",
    "vectors": "scikit-learn on the same vectors",
    "ours": "bertwright",
    "difference": "bertwright less scikit-learn [95 %]",
    "dev_examples": "development examples",
}
"""Columns of the table, by key."""

OURS = "ours"

TASK_FOLDERS = {
    "sst-2": "glue/SST-2",
    "mrpc": "glue/MRPC",
    "cola": "glue/CoLA",
    "sick": "sick",
    "sick-relatedness": "sick",
    "movie-reviews": "movie_reviews",
}
"""Folders of the tasks among the data sets."""

TRAIN_SIZES = (100, 300, 1000)


@dataclass(frozen=True)
class FrozenFeaturesPlan:
    """An encoder, data sets, and the sizes and number of training samples."""

    data: Path
    model: Path | None = None
    train_sizes: Sequence[int] = TRAIN_SIZES
    seeds: int = 5
    tasks: Sequence[str] = tuple(TASK_FOLDERS)


def compare(plan: FrozenFeaturesPlan, output: Path, log: Log) -> list[dict[str, Any]]:
    """Return the rows of the table; runs with results in ``output`` are not repeated."""
    output.mkdir(parents=True, exist_ok=True)
    runs = ResultStore(output / "frozen.json")
    folder = plan.model or checkpoint_folder()
    model = load(folder, "float32")
    rows: list[dict[str, Any]] = []
    for name in plan.tasks:
        task = _find_task(name)
        train, dev = (
            task.read_examples(find_split_file(plan.data / TASK_FOLDERS[name], "train")),
            task.read_examples(find_split_file(plan.data / TASK_FOLDERS[name], "dev")),
        )
        task = task.with_labels_from(train)
        cache: dict[str, Tensor] = {}
        for size in dict.fromkeys(min(size, len(train)) for size in plan.train_sizes):
            by_seed: list[Mapping[str, Mapping[str, float]]] = []
            for seed in range(plan.seeds):
                sample = [train[n] for n in sorted(stratified_order(task, train, seed)[:size])]
                run = _run_hash(folder, task, sample, dev)
                if run not in runs.results:
                    runs.add(run, _scores(model, task, sample, dev, cache))
                    log(
                        f"{name}, {size} examples, seed {seed}: {_summary(runs.results[run], task)}"
                    )
                by_seed.append(runs.results[run])
            rows += [_row(name, size, metric, by_seed, len(dev)) for metric in task.metrics]
    return rows


@dataclass
class CachedFrozenFeatures(FrozenFeatures):
    """Frozen features that are cached by the tokens of a text."""

    source: TextModel
    net: MultiTaskModel
    parts: Sequence[EncodedTask]
    precision: Precision
    cache: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def __post_init__(self) -> None:
        super().__init__(self.source, self.net, self.parts, self.precision)

    def _read_features(self, task_index: int, sequences: Sequence[TaskSequence]) -> list[Tensor]:
        names = [
            sha256(repr((sequence.token_ids, sequence.document_ids)).encode()).hexdigest()
            for sequence in sequences
        ]
        new = {
            name: sequence
            for name, sequence in zip(names, sequences, strict=True)
            if name not in self.cache
        }
        self.cache.update(
            zip(new, super()._read_features(task_index, list(new.values())), strict=True)
        )
        return [self.cache[name] for name in names]


def _find_task(name: str) -> Task:
    return table_task(name, Columns()) if name == "movie-reviews" else find_task(name)


def _scores(
    model: TextModel, task: Task, train: Examples, dev: Examples, cache: dict[str, Tensor]
) -> dict[str, Any]:
    """Return every metric of our head and of the baselines."""
    config = FineTuningConfig.from_settings({"adaptation": "frozen", "calibrate": False})
    run = build_run(model, [(task, train, dev)], config)
    features = CachedFrozenFeatures(model, run.model, run.encoded_tasks, run.precision, cache)
    run.frozen_features.append(features)
    _, best = run_seeds(run)
    predictions = {OURS: best.predictions[0], **_baselines(run, features, dev)}
    return {name: task.score(dev, values) for name, values in predictions.items()}


def _baselines(
    run: FineTuningRun, features: FrozenFeatures, dev: Examples
) -> dict[str, Sequence[Prediction]]:
    """Return the predictions of every baseline by its kind."""
    vectors: list[FloatArray] = [v.float().numpy() for v in features.held_out_features(0)]
    return {b.kind: b.predict(dev, vectors) for b in run_baselines(run, 0)}


def _row(
    name: str,
    size: int,
    metric: str,
    by_seed: Sequence[Mapping[str, Mapping[str, float]]],
    num_dev_examples: int,
) -> dict[str, Any]:
    scores = {kind: [run[kind][metric] for run in by_seed] for kind in by_seed[0]}
    return {
        "task": name,
        "examples": size,
        "metric": metric,
        "constant": fmean(scores["constant"]),
        "words": str(estimate(scores["words-linear"])),
        "vectors": str(estimate(scores["vectors-linear"])),
        "ours": str(estimate(scores[OURS])),
        "difference": str(paired_difference(scores[OURS], scores["vectors-linear"])),
        "dev_examples": num_dev_examples,
        "scores": scores,
    }


def _summary(scores: Mapping[str, Mapping[str, float]], task: Task) -> str:
    metric = task.metrics[0]
    return ", ".join(f"{kind} {values[metric]:.3f}" for kind, values in scores.items())


def _run_hash(folder: Path, task: Task, train: Examples, dev: Examples) -> str:
    """Return a hash of everything that determines a run."""
    weights = sorted((f.name, f.stat().st_size) for f in folder.glob("*.safetensors"))
    inputs = repr((weights, task, train, dev, torch.__version__))
    return sha256(inputs.encode()).hexdigest()[:16]
