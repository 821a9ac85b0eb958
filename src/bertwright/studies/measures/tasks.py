"""Measures of what a trained model is worth for tasks: fine-tuning and linear probes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from bertwright.core.config import did_you_mean
from bertwright.core.messages import count_noun
from bertwright.data.shards.dataset import Dataset
from bertwright.models.layer_selection import select_layers
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import CorpusFolder
from bertwright.studies.measures.measure import Measure, Metrics, TrainedArm
from bertwright.tasks.catalogue import TASKS, find_split_file, table_task
from bertwright.tasks.evaluation.evaluate import evaluate as evaluate_task
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task


class FineTuningMeasure(Measure):
    """The scores of an arm fine-tuned for a task.

    The task is part of the corpus, or in the catalogue with its ``data`` folder; ``train`` and
    ``dev`` name its files where the folder has several. At most ``examples`` of its training
    examples are used, and ``dev_examples`` of the others. The model is also evaluated, without
    further training, on ``transfer_tasks`` of the corpus, such as the same task in another
    language. The scores are means over ``repeats`` fine-tunings with other seeds and, if
    ``examples`` is set, other examples: with few examples they vary as much as those of other
    pre-trained models.
    """

    kind: Literal["fine-tuning"] = "fine-tuning"
    task: str
    data: str | None = None
    train: str | None = None
    dev: str | None = None
    examples: int | None = Field(default=None, ge=1)
    dev_examples: int | None = Field(default=None, ge=1)
    repeats: int = Field(default=1, ge=1)
    transfer_tasks: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)

    @field_validator("settings")
    @classmethod
    def _check_seed(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if odd := sorted({"seed", "seeds"} & set(settings)):
            raise ValueError(f"the arm sets {odd[0]}: leave it out")
        FineTuningConfig.from_settings(settings)
        return settings

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        if self.data is not None and TASKS.find(self.task) is None:
            return f"there is no task {self.task!r}{did_you_mean(self.task, TASKS)}"
        if self.data is not None:
            paths = (Path(self.data), *(Path(self.data) / f for f in (self.train, self.dev) if f))
            missing = next((f"there is no {path}" for path in paths if not path.exists()), None)
        else:
            missing = _missing_task(corpus, (self.task, *self.transfer_tasks))
        if missing or self.examples is None:
            return missing
        return _missing_examples(
            self.task, self.input_files(corpus)[0], self.examples, self.repeats
        )

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        folder = corpus.task(self.task) if self.data is None else Path(self.data)
        others = [find_split_file(corpus.task(name), "dev") for name in self.transfer_tasks]
        train = folder / self.train if self.train else find_split_file(folder, "train")
        dev = folder / self.dev if self.dev else find_split_file(folder, "dev")
        return [train, dev, *others]

    def compute(self, arm: TrainedArm) -> Metrics:
        train, dev, *_ = self.input_files(arm.corpus)
        task = _find_task(self.task, train)
        train_examples = task.read_examples(train)
        dev_examples = task.read_examples(dev)[: self.dev_examples]
        scores: list[dict[str, float]] = []
        for number in range(self.repeats):
            first = number * (self.examples or 0)
            result = finetune(
                arm.text_model(),
                task,
                train=train_examples[first:][: self.examples],
                dev=dev_examples,
                seed=arm.seed * self.repeats + number,
                **self.settings,
            )
            scores.append(dict(result.seed_reports[0].scores[task.name]))
            for name in self.transfer_tasks:
                other = evaluate_task(result.model, arm.corpus.task(name))["metrics"]
                scores[-1] |= {f"{name}-{metric}": score for metric, score in other.items()}
        return _mean_scores(scores)


class LinearProbeMeasure(Measure):
    """The scores of a linear probe: ridge regression from frozen hidden states to tags.

    A word is read at its first token; ``layers`` are concatenated, and at most ``examples`` are
    used. The scores are means over ``repeats`` probes with other examples.
    """

    kind: Literal["linear-probe"] = "linear-probe"
    task: str
    layers: str = "last"
    examples: int = Field(default=200, ge=1)
    repeats: int = Field(default=1, ge=1)
    ridge: float = Field(default=1.0, gt=0)

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        if missing := _missing_task(corpus, (self.task,)):
            return missing
        return _missing_examples(
            self.task, self.input_files(corpus)[0], self.examples, self.repeats
        )

    def check(self, recipe: Recipe, data: Dataset) -> None:
        select_layers(self.layers, "concat", recipe.encoder.hidden_widths)

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        folder = corpus.task(self.task)
        return [find_split_file(folder, "train"), find_split_file(folder, "dev")]

    def compute(self, arm: TrainedArm) -> Metrics:
        train, dev = self.input_files(arm.corpus)
        task, model = _find_task(self.task, train), arm.text_model()
        train_examples = cast(list[TaggedSentence], task.read_examples(train))
        dev_examples = cast(list[TaggedSentence], task.read_examples(dev))
        dev_vectors = self._word_vectors(model, dev_examples)
        scores: list[Metrics] = []
        for number in range(self.repeats):
            examples = train_examples[number * self.examples :][: self.examples]
            tags = sorted({tag for example in examples for tag in example.tags or ()})
            targets = [
                np.eye(len(tags))[[tags.index(t) for t in example.tags or ()]]
                for example in examples
            ]
            x = np.concatenate(self._word_vectors(model, examples))
            xy = x.T @ np.concatenate(targets)
            weights = np.linalg.solve(x.T @ x + self.ridge * np.eye(x.shape[1]), xy)
            predictions = [
                Prediction(tuple(tags[n] for n in (vectors @ weights).argmax(1)))
                for vectors in dev_vectors
            ]
            scores.append(task.score(dev_examples, predictions))
        return _mean_scores(scores)

    def _word_vectors(
        self, model: TextModel, examples: Sequence[TaggedSentence]
    ) -> list[NDArray[Any]]:
        """Return (words, D + 1) float64 per example: hidden states, then a 1 for the bias."""
        states = model.encode([" ".join(example.words) for example in examples], self.layers)
        firsts = [model.tokenizer.encode_pretokenized(list(e.words))[1] for e in examples]
        words = [state[1:][first] for state, first in zip(states, firsts, strict=True)]
        return [np.append(w, np.ones((len(w), 1)), axis=1).astype(np.float64) for w in words]


def _missing_task(corpus: CorpusFolder, names: Sequence[str]) -> str | None:
    known = [folder.name for folder in sorted(corpus.tasks.glob("*"))]
    for name in names:
        if name not in known:
            return f"the corpus has no task {name!r}{did_you_mean(name, known)}"
    return None


def _missing_examples(task: str, train: Path, examples: int, repeats: int) -> str | None:
    """Describe what is missing if every repeat needs other examples."""
    if repeats == 1:
        return None
    num_examples = len(_find_task(task, train).read_examples(train))
    if num_examples >= examples * repeats:
        return None
    return f"{train} has {count_noun(num_examples, 'example')}, not {examples * repeats}"


def _mean_scores(scores: Sequence[Metrics]) -> dict[str, float]:
    return {name: float(np.mean([s[name] for s in scores])) for name in scores[0]}


def _find_task(name: str, train: Path) -> Task:
    """Return a task in the catalogue; else a table task with text, label and optional pair."""
    if (task := TASKS.find(name)) is not None:
        return task
    if train.suffix == ".iob2":
        return TASKS["ner"]
    with open(train, encoding="utf-8") as file:
        has_pair = "pair" in file.readline().rstrip("\n").split("\t")
    return table_task(name, Columns("text", "pair" if has_pair else None, "label"))
