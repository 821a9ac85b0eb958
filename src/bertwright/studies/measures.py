"""The axis of measures: named metrics of a trained arm."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator

from bertwright.core.config import Config, did_you_mean, to_user_error
from bertwright.core.errors import UserError
from bertwright.data.interaction_histories import TEST
from bertwright.data.shards.dataset import Dataset
from bertwright.data.shards.halves import Half, with_heldout_half
from bertwright.models.costs import num_parameters_by_part, training_flops
from bertwright.models.layer_selection import select_layers
from bertwright.models.saving import TRAINING_FILE, load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import merge
from bertwright.studies.corpora import CorpusFolder
from bertwright.tasks.catalogue import TASKS, find_split_file, table_task
from bertwright.tasks.evaluation.evaluate import evaluate as evaluate_task
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task
from bertwright.tasks.zero_shot.minimal_pairs import (
    first_of_each_paradigm,
    read_minimal_pairs,
    score_minimal_pairs,
)
from bertwright.training.evaluation.held_out import (
    evaluate,
    evaluate_next_items,
    make_held_out_evaluation,
)

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class TrainedArm:
    """An arm trained with one seed, with its data."""

    folder: Path
    data: Dataset
    corpus: CorpusFolder
    seed: int

    def text_model(self) -> TextModel:
        """Return the model in float32."""
        return TextModel(*load_model(self.folder), "float32")


class Measure(Config):
    """The axis of measures; ``arms`` are the arms to measure, by default all."""

    arms: tuple[str, ...] | None = None

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        """Describe a missing input; None if there is none."""
        return None

    def check(self, recipe: Recipe, data: Dataset) -> None:
        """Raise UserError if the measure does not fit models of a recipe or a data set."""

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        """Return the files that the metrics depend on, besides the data set."""
        return []

    def compute(self, arm: TrainedArm) -> Metrics:
        """Return the metrics of a trained arm."""
        raise TypeError(f"{type(self).__name__} is an axis, not a measure")


class HeldOutMeasure(Measure):
    """The last phase's objectives on held-out text, optionally with ``changes`` to the recipe.

    An objective uses the head with its name, which may have been trained for another objective.
    With ``half``, only the first or the second half of the held-out documents is read, so that a
    choice on one can be evaluated on the other.
    """

    kind: Literal["held-out"] = "held-out"
    changes: dict[str, Any] = Field(default_factory=dict)
    half: Half | None = None

    def check(self, recipe: Recipe, data: Dataset) -> None:
        changed, text = self._changed_recipe(recipe), self._text(data)
        make_held_out_evaluation(changed, len(changed.phases) - 1, text, num_tokens=1)

    def compute(self, arm: TrainedArm) -> Metrics:
        model, _ = load_model(arm.folder)
        return evaluate(model, self._text(arm.data), self._changed_recipe(model.recipe))

    def _text(self, data: Dataset) -> Dataset:
        return data if self.half is None else with_heldout_half(data, self.half)

    def _changed_recipe(self, recipe: Recipe) -> Recipe:
        try:
            changed = Recipe.model_validate(merge(recipe.as_dict(), self.changes))
        except ValidationError as error:
            raise to_user_error(error, f"held-out, of recipe {recipe.name}") from error
        if changed.encoder != recipe.encoder:
            raise UserError("a held-out measure may change objectives, but not the encoder")
        return changed


class NextItemMeasure(Measure):
    """The ranking of the last items of whole histories, compared with ranking by popularity.

    Differences from popularity have names such as ``over_popularity_hr_10``.
    """

    kind: Literal["next-item"] = "next-item"

    def compute(self, arm: TrainedArm) -> Metrics:
        model, _ = load_model(arm.folder)
        last = len(model.recipe.phases) - 1
        metrics = evaluate_next_items(model, model.recipe, last, arm.data, TEST)
        differences = {
            f"over_{name}": metrics[name.removeprefix("popularity_")] - value
            for name, value in metrics.items()
            if name.startswith("popularity_")
        }
        return metrics | differences


class MinimalPairMeasure(Measure):
    """The accuracy on minimal pairs: how often the acceptable sentence is the more likely one.

    The pairs come from ``file`` or from the corpus, at most ``max_per_paradigm`` per paradigm.
    """

    kind: Literal["minimal-pairs"] = "minimal-pairs"
    file: str | None = None
    max_per_paradigm: int | None = Field(default=None, ge=1)

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        if self.file is not None and not Path(self.file).exists():
            return f"there is no file {self.file}"
        if self.file is None and not corpus.minimal_pairs.exists():
            return "the corpus has no minimal pairs: name a file"
        return None

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        return [corpus.minimal_pairs if self.file is None else Path(self.file)]

    def compute(self, arm: TrainedArm) -> Metrics:
        pairs = read_minimal_pairs(*self.input_files(arm.corpus))
        if self.max_per_paradigm is not None:
            pairs = first_of_each_paradigm(pairs, self.max_per_paradigm)
        scores = score_minimal_pairs(arm.text_model(), pairs)
        paradigms = {name: score.accuracy for name, score in scores.by_paradigm.items()}
        return {"accuracy": scores.total.accuracy, **paradigms}


class ContinuationMeasure(Measure):
    """The accuracy on the prompts of the corpus, by kind of prompt.

    The prediction is the greedy continuation of the prompt. A model that is not causal fills in the
    gap instead, if the prompt has one.
    """

    kind: Literal["continuation"] = "continuation"

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        return None if corpus.prompts.exists() else "the corpus has no prompts"

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        return [corpus.prompts]

    def compute(self, arm: TrainedArm) -> Metrics:
        path = arm.corpus.prompts
        prompts = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        model = arm.text_model()
        if model.is_causal or "gap" not in prompts[0]:
            pairs = [(prompt["prompt"], prompt["continuation"]) for prompt in prompts]
            is_correct = continues_correctly(model, pairs)
        else:
            is_correct = [fills_correctly(model, p["gap"], p["continuation"]) for p in prompts]
        kinds = [prompt["kind"] for prompt in prompts]
        return {
            kind: fmean(c for c, other in zip(is_correct, kinds, strict=True) if other == kind)
            for kind in dict.fromkeys(kinds)
        }


def continues_correctly(
    model: TextModel, prompts_and_continuations: Sequence[tuple[str, str]]
) -> list[bool]:
    """Return whether a model continues each prompt as expected."""
    expected = [tuple(model.tokenizer.encode(f" {text}")) for _, text in prompts_and_continuations]
    is_correct = [False] * len(prompts_and_continuations)
    for length in sorted(set(map(len, expected))):
        indices = [index for index, ids in enumerate(expected) if len(ids) == length]
        prompts = [prompts_and_continuations[index][0] for index in indices]
        continuations = model.generate(prompts, max_new_tokens=length, temperature=0)
        for index, continuation in zip(indices, continuations, strict=True):
            is_correct[index] = continuation.token_ids == expected[index]
    return is_correct


def fills_correctly(model: TextModel, gap: str, expected: str) -> bool:
    """Return whether the most likely tokens for the [MASK] of a text are the expected ones."""
    expected_ids = model.tokenizer.encode(f" {expected}")
    predictions = model.fill_mask(gap.replace("[MASK]", "[MASK]" * len(expected_ids)), top_k=1)
    expected_tokens = [model.tokenizer.id_to_token(token_id) for token_id in expected_ids]
    return [best.token for best, *_ in predictions] == expected_tokens


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
    examples: int | None = None
    dev_examples: int | None = None
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
    examples: int = 200
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


class CostMeasure(Measure):
    """The cost of an arm: steps, tokens, seconds, FLOPs and parameters."""

    kind: Literal["cost"] = "cost"

    def compute(self, arm: TrainedArm) -> Metrics:
        training = json.loads((arm.folder / TRAINING_FILE).read_text(encoding="utf-8"))
        model, _ = load_model(arm.folder)
        recipe, size = model.recipe, model.vocab_size
        fraction = training["steps"] / recipe.steps
        return {
            "steps": training["steps"],
            "tokens": training["tokens"],
            "seconds": training["seconds"],
            "flops": fraction * training_flops(recipe, size),
            "parameters": sum(num_parameters_by_part(recipe, size).values()),
        }


def _missing_task(corpus: CorpusFolder, names: Sequence[str]) -> str | None:
    known = [folder.name for folder in sorted(corpus.tasks.glob("*"))]
    for name in names:
        if name not in known:
            return f"the corpus has no task {name!r}{did_you_mean(name, known)}"
    return None


def _missing_examples(task: str, train: Path, examples: int, repeats: int) -> str | None:
    """Describe what is missing if every repeat needs examples of its own."""
    if repeats == 1:
        return None
    num_examples = len(_find_task(task, train).read_examples(train))
    if num_examples >= examples * repeats:
        return None
    return f"{train} has {num_examples} examples, not {examples * repeats}"


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
