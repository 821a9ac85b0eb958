"""Frozen features of few examples: a head of ours against scikit-learn on the same vectors, TF-IDF
and what is most frequent.

What is read of a text is computed once, whichever training it stands in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from bertwright.axes import Precision
from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.runs import Runs
from bertwright.interop.loading import load
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate, paired
from bertwright.tasks.answers import Floats, Prediction
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.baselines.fitting import part_baselines
from bertwright.tasks.catalogue import find_part, find_task, table_task
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.finetuning import with_every_seed
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.kept_states import KeptStates
from bertwright.tasks.parts import Part
from bertwright.tasks.splitting import nested_order
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import Adapted
from bertwright.tasks.task_training import Training, unwatched

Say = Callable[[str], None]

COLUMNS = {
    "task": "task",
    "examples": "training examples",
    "metric": "metric",
    "constant": "most frequent class, or mean",
    "words": "TF-IDF, linear",
    "vectors": "scikit-learn on the same vectors",
    "ours": "ours",
    "difference": "ours less scikit-learn's [95 %]",
    "judged": "judged on",
}
"""What a document shows, by key."""

OURS = "ours"

FOLDERS = {
    "sst-2": "glue/SST-2",
    "mrpc": "glue/MRPC",
    "cola": "glue/CoLA",
    "sick": "sick",
    "sick-relatedness": "sick",
    "movie-reviews": "movie_reviews",
}
"""Of each task its folder among the data sets."""

SIZES = (100, 300, 1000)


@dataclass(frozen=True)
class Frozen:
    """The comparison: an encoder, a folder of data sets, and how many seeds draw examples."""

    data: Path
    model: Path | None = None
    sizes: Sequence[int] = SIZES
    seeds: int = 5
    tasks: Sequence[str] = tuple(FOLDERS)


def compare(plan: Frozen, out: Path, say: Say) -> list[dict[str, Any]]:
    """Return the rows of the table; runs that stand in ``out`` are not done again."""
    out.mkdir(parents=True, exist_ok=True)
    runs = Runs(out / "frozen.json")
    folder = plan.model or checkpoint_folder()
    model = load(folder, "float32")
    rows: list[dict[str, Any]] = []
    for name in plan.tasks:
        task = _task(name)
        train, dev = (
            task.read(find_part(plan.data / FOLDERS[name], "train")),
            task.read(find_part(plan.data / FOLDERS[name], "dev")),
        )
        task = task.gathered(train)
        known: dict[str, Tensor] = {}
        for size in dict.fromkeys(min(size, len(train)) for size in plan.sizes):
            by_seed: list[Mapping[str, Mapping[str, float]]] = []
            for seed in range(plan.seeds):
                some = [train[n] for n in sorted(nested_order(task, train, seed)[:size])]
                run = _run_name(folder, task, some, dev)
                if run not in runs.known:
                    runs.keep(run, _scores(model, task, some, dev, known))
                    say(f"{name}, {size} examples, seed {seed}: {_summary(runs.known[run], task)}")
                by_seed.append(runs.known[run])
            rows += [_row(name, size, metric, by_seed, len(dev)) for metric in task.metrics]
    return rows


@dataclass
class RememberedStates(KeptStates):
    """What heads read of texts, which is remembered by the tokens of the text."""

    source: TextModel
    net: Adapted
    parts: Sequence[Part]
    precision: Precision
    known: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    def __post_init__(self) -> None:
        super().__init__(self.source, self.net, self.parts, self.precision)

    def _read(self, part: int, rows: Sequence[TaskRow]) -> list[Tensor]:
        names = [sha256(repr((row.pieces, row.documents)).encode()).hexdigest() for row in rows]
        new = {name: row for name, row in zip(names, rows, strict=True) if name not in self.known}
        self.known.update(zip(new, super()._read(part, list(new.values())), strict=True))
        return [self.known[name] for name in names]


def _task(name: str) -> Task:
    return table_task(name, Columns()) if name == "movie-reviews" else find_task(name)


def _scores(
    model: TextModel, task: Task, train: Examples, dev: Examples, known: dict[str, Tensor]
) -> dict[str, Any]:
    """Return every metric of our head and of the baselines."""
    chosen = FineTuning.of({"adaptation": "frozen", "calibrate": False})
    training = prepare_training(model, [(task, train, dev)], chosen, unwatched, None)
    states = RememberedStates(model, training.net, training.parts, training.precision, known)
    training.kept_states.append(states)
    _, best = with_every_seed(training, chosen)
    answers = {OURS: best.predictions[0], **_baselines(training, states, dev)}
    return {name: task.score(dev, predictions) for name, predictions in answers.items()}


def _baselines(
    training: Training, states: KeptStates, dev: Examples
) -> dict[str, Sequence[Prediction]]:
    """Return the answers of every baseline, by its kind."""
    vectors: list[Floats] = [features.float().numpy() for features in states.held_out(0)]
    return {one.kind: one.predict(dev, vectors) for one in part_baselines(training, 0)}


def _row(
    name: str,
    size: int,
    metric: str,
    by_seed: Sequence[Mapping[str, Mapping[str, float]]],
    num_judged: int,
) -> dict[str, Any]:
    of = {kind: [run[kind][metric] for run in by_seed] for kind in by_seed[0]}
    return {
        "task": name,
        "examples": size,
        "metric": metric,
        "constant": fmean(of["constant"]),
        "words": str(estimate(of["words-linear"])),
        "vectors": str(estimate(of["vectors-linear"])),
        "ours": str(estimate(of[OURS])),
        "difference": str(paired(of[OURS], of["vectors-linear"])),
        "judged": num_judged,
        "scores": of,
    }


def _summary(scores: Mapping[str, Mapping[str, float]], task: Task) -> str:
    metric = task.metrics[0]
    return ", ".join(f"{kind} {of[metric]:.3f}" for kind, of in scores.items())


def _run_name(folder: Path, task: Task, train: Examples, dev: Examples) -> str:
    """Return what decides a run."""
    weights = sorted((f.name, f.stat().st_size) for f in folder.glob("*.safetensors"))
    deciding = repr((weights, task, train, dev, torch.__version__))
    return sha256(deciding.encode()).hexdigest()[:16]
