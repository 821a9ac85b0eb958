"""The axis of measures: what is found out about a trained arm, as named figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator

from bertwright.axes import Choice, did_you_mean, explain
from bertwright.errors import UserError
from bertwright.model.counting import parameters_by_part, training_arithmetic
from bertwright.model.folder import TRAINING, load_model
from bertwright.model.layers import layers_of
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import merged
from bertwright.studies.corpora import Written
from bertwright.tasks.answers import Prediction
from bertwright.tasks.catalogue import TASKS, find_part, table_task
from bertwright.tasks.evaluation import evaluate as evaluate_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.minimal_pairs import first_of_each, read_minimal_pairs
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.minimal_pairs import score_minimal_pairs
from bertwright.tasks.task import Task
from bertwright.text.histories import TEST
from bertwright.text.shards import Data
from bertwright.training.evaluation import evaluate, held_out, next_items

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Trained:
    """An arm that has been trained with one seed, and what it was trained on."""

    folder: Path
    data: Data
    corpus: Written
    seed: int

    def text_model(self) -> TextModel:
        """The model in float32."""
        return TextModel(*load_model(self.folder), "float32")


class Measure(Choice):
    """The axis; only these ``arms`` are measured, or all."""

    arms: tuple[str, ...] | None = None

    def missing(self, corpus: Written) -> str | None:
        """What it needs and is not there, in words."""
        return None

    def check(self, recipe: Recipe, data: Data) -> None:
        """UserError where a model of this recipe cannot be measured so on this data set."""

    def reads(self, corpus: Written) -> list[Path]:
        """The files and folders, beside the data set, that its figures depend on."""
        return []

    def of(self, trained: Trained) -> Figures:
        """The figures of a trained arm."""
        raise TypeError(f"{type(self).__name__} is an axis, not a measure")


class HeldOut(Measure):
    """The questions of its last phase on held-out text, or others with ``changes`` to the recipe.

    A question is answered by the head of its name: one that was trained for something else may be
    asked.
    """

    kind: Literal["held-out"] = "held-out"
    changes: dict[str, Any] = Field(default_factory=dict)

    def check(self, recipe: Recipe, data: Data) -> None:
        asked = self._asked(recipe)
        held_out(asked, len(asked.phases) - 1, data, num_tokens=1)

    def of(self, trained: Trained) -> Figures:
        model, _ = load_model(trained.folder)
        return evaluate(model, trained.data, self._asked(model.recipe))

    def _asked(self, recipe: Recipe) -> Recipe:
        try:
            asked = Recipe.model_validate(merged(recipe.as_dict(), self.changes))
        except ValidationError as error:
            raise explain(error, f"held-out, of recipe {recipe.name}") from error
        if asked.encoder != recipe.encoder:
            raise UserError("a held-out measure may change what is asked, not the encoder")
        return asked


class NextItem(Measure):
    """Where the last items of whole histories are ranked, and how far above popularity: the
    difference for every figure, ``over_popularity_hr_10`` and the like."""

    kind: Literal["next-item"] = "next-item"

    def of(self, trained: Trained) -> Figures:
        model, _ = load_model(trained.folder)
        last = len(model.recipe.phases) - 1
        found = next_items(model, model.recipe, last, trained.data, TEST)
        above = {
            f"over_{name}": found[name.removeprefix("popularity_")] - value
            for name, value in found.items()
            if name.startswith("popularity_")
        }
        return found | above


class MinimalPairs(Measure):
    """The share of minimal pairs whose acceptable sentence is the more likely one: those of a
    ``file``, or those that come with the corpus; of each paradigm the first ``most``, or all."""

    kind: Literal["minimal-pairs"] = "minimal-pairs"
    file: str | None = None
    most: int | None = Field(default=None, ge=1)

    def missing(self, corpus: Written) -> str | None:
        if self.file is not None and not Path(self.file).exists():
            return f"there is no file {self.file}"
        if self.file is None and not corpus.pairs.exists():
            return "the corpus has no minimal pairs: name a file"
        return None

    def reads(self, corpus: Written) -> list[Path]:
        return [corpus.pairs if self.file is None else Path(self.file)]

    def of(self, trained: Trained) -> Figures:
        pairs = read_minimal_pairs(*self.reads(trained.corpus))
        if self.most is not None:
            pairs = first_of_each(pairs, self.most)
        found = score_minimal_pairs(trained.text_model(), pairs)
        paradigms = {name: scores.accuracy for name, scores in found.paradigms.items()}
        return {"accuracy": found.all.accuracy, **paradigms}


class Answers(Measure):
    """The share of the questions of the corpus that are answered right, by their kind.

    The answer is the likeliest text of its length behind the prompt. A model that does not read on
    fills a gap, where the question has one.
    """

    kind: Literal["answers"] = "answers"

    def missing(self, corpus: Written) -> str | None:
        return None if corpus.questions.exists() else "the corpus asks no questions"

    def reads(self, corpus: Written) -> list[Path]:
        return [corpus.questions]

    def of(self, trained: Trained) -> Figures:
        path = trained.corpus.questions
        asked = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        model = trained.text_model()
        if model.continues or "gap" not in asked[0]:
            right = answered(model, [(each["prompt"], each["answer"]) for each in asked])
        else:
            right = [filled(model, each["gap"], each["answer"]) for each in asked]
        kinds = [each["kind"] for each in asked]
        return {
            kind: fmean(r for r, own in zip(right, kinds, strict=True) if own == kind)
            for kind in dict.fromkeys(kinds)
        }


def answered(model: TextModel, asked: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether a model goes on from every prompt with its answer."""
    pieces = [tuple(model.tokenizer.encode(f" {answer}")) for _, answer in asked]
    right = [False] * len(asked)
    for length in sorted(set(map(len, pieces))):
        numbers = [number for number, own in enumerate(pieces) if len(own) == length]
        prompts = [asked[number][0] for number in numbers]
        found = model.generate(prompts, max_new_tokens=length, temperature=0)
        for number, continuation in zip(numbers, found, strict=True):
            right[number] = continuation.pieces == pieces[number]
    return right


def filled(model: TextModel, gap: str, answer: str) -> bool:
    """Whether the likeliest pieces in the place of the [MASK] of a text are this answer."""
    pieces = model.tokenizer.encode(f" {answer}")
    found = model.fill_mask(gap.replace("[MASK]", "[MASK]" * len(pieces)), top_k=1)
    return [guess.piece for guess, *_ in found] == [model.tokenizer.piece(n) for n in pieces]


class Probe(Measure):
    """How well the arm learns a task: one that comes with the corpus, or a known one with its
    ``data`` folder. ``examples`` of its training part are used. What was learned is also asked of
    the tasks ``transferred`` of the corpus, in another language say, without learning them."""

    kind: Literal["probe"] = "probe"
    task: str
    data: str | None = None
    examples: int | None = None
    transferred: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)

    @field_validator("settings")
    @classmethod
    def _of_one_run(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if odd := sorted({"seed", "seeds"} & set(settings)):
            raise ValueError(f"{odd[0]} is that of the arm: leave it out")
        FineTuning.of(settings)
        return settings

    def missing(self, corpus: Written) -> str | None:
        if self.data is not None and self.task not in TASKS:
            return f"there is no task {self.task!r}{did_you_mean(self.task, TASKS)}"
        if self.data is not None:
            return None if Path(self.data).is_dir() else f"there is no folder {self.data}"
        return _no_task(corpus, (self.task, *self.transferred))

    def reads(self, corpus: Written) -> list[Path]:
        folder = corpus.task(self.task) if self.data is None else Path(self.data)
        others = [find_part(corpus.task(name), "dev") for name in self.transferred]
        return [find_part(folder, "train"), find_part(folder, "dev"), *others]

    def of(self, trained: Trained) -> Figures:
        train, dev, *_ = self.reads(trained.corpus)
        task = _task(self.task, train)
        learned = task.read(train)[: self.examples]
        result = finetune(
            trained.text_model(),
            task,
            train=learned,
            dev=task.read(dev),
            seed=trained.seed,
            **self.settings,
        )
        scores = dict(result.runs[0].scores[task.name])
        for name in self.transferred:
            other = evaluate_task(result.model, trained.corpus.task(name))["metrics"]
            scores |= {f"{name}-{metric}": score for metric, score in other.items()}
        return scores


class Features(Measure):
    """How well words are tagged by a linear map of the frozen states of their first pieces: ridge
    regression from ``layers`` side by side, learned from so many ``examples``."""

    kind: Literal["features"] = "features"
    task: str
    layers: str = "last"
    examples: int = 200
    ridge: float = Field(default=1.0, gt=0)

    def missing(self, corpus: Written) -> str | None:
        return _no_task(corpus, (self.task,))

    def check(self, recipe: Recipe, data: Data) -> None:
        layers_of(self.layers, "concat", recipe.encoder.widths)

    def reads(self, corpus: Written) -> list[Path]:
        folder = corpus.task(self.task)
        return [find_part(folder, "train"), find_part(folder, "dev")]

    def of(self, trained: Trained) -> Figures:
        train, dev = self.reads(trained.corpus)
        task, model = _task(self.task, train), trained.text_model()
        learned = cast(list[TaggedWords], task.read(train))[: self.examples]
        asked = cast(list[TaggedWords], task.read(dev))
        tags = sorted({tag for each in learned for tag in each.tags or ()})
        wanted = [np.eye(len(tags))[[tags.index(t) for t in each.tags or ()]] for each in learned]
        known = np.concatenate(self._states(model, learned))
        right = known.T @ np.concatenate(wanted)
        weights = np.linalg.solve(known.T @ known + self.ridge * np.eye(known.shape[1]), right)
        found = [
            Prediction(tuple(tags[n] for n in (x @ weights).argmax(1)))
            for x in self._states(model, asked)
        ]
        return task.score(asked, found)

    def _states(self, model: TextModel, examples: Sequence[TaggedWords]) -> list[NDArray[Any]]:
        """(words, D + 1) float64 of each example: states, and a 1 for what is added."""
        states = model.encode([" ".join(each.words) for each in examples], self.layers)
        places = [model.tokenizer.words(list(each.words))[1] for each in examples]
        words = [own[1:][first] for own, first in zip(states, places, strict=True)]
        return [np.append(own, np.ones((len(own), 1)), axis=1).astype(np.float64) for own in words]


class Cost(Measure):
    """What the arm has cost: steps, tokens, seconds, floating-point operations; and its size."""

    kind: Literal["cost"] = "cost"

    def of(self, trained: Trained) -> Figures:
        about = json.loads((trained.folder / TRAINING).read_text(encoding="utf-8"))
        model, _ = load_model(trained.folder)
        recipe, size = model.recipe, model.vocabulary_size
        done = about["steps"] / recipe.steps
        return {
            "steps": about["steps"],
            "tokens": about["tokens"],
            "seconds": about["seconds"],
            "operations": done * training_arithmetic(recipe, size),
            "parameters": sum(parameters_by_part(recipe, size).values()),
        }


def _no_task(corpus: Written, names: Sequence[str]) -> str | None:
    known = [folder.name for folder in sorted(corpus.tasks.glob("*"))]
    for name in names:
        if name not in known:
            return f"the corpus has no task {name!r}{did_you_mean(name, known)}"
    return None


def _task(name: str, train: Path) -> Task:
    """A known task, or a table with columns text, perhaps pair, and label."""
    if name in TASKS:
        return TASKS[name]
    if train.suffix == ".iob2":
        return TASKS["ner"]
    with open(train, encoding="utf-8") as file:
        has_pair = "pair" in file.readline().rstrip("\n").split("\t")
    return table_task(name, Columns("text", "pair" if has_pair else None, "label"))
