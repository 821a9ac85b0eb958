"""Measures of a trained model as it is: losses, minimal pairs, continuations, costs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field, ValidationError

from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.data.interaction_histories import TEST
from bertwright.data.shards.dataset import Dataset
from bertwright.data.shards.halves import Half, with_heldout_half
from bertwright.models.costs import num_parameters_by_part, training_flops
from bertwright.models.saving import TRAINING_FILE, load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import merge
from bertwright.studies.corpora import CorpusFolder
from bertwright.studies.measures.measure import Measure, Metrics, TrainedArm
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

    def bounds_of(self, metric: str) -> tuple[float, float] | None:
        return 0.0, 1.0

    def compute(self, arm: TrainedArm) -> Metrics:
        pairs = read_minimal_pairs(*self.input_files(arm.corpus))
        if self.max_per_paradigm is not None:
            pairs = first_of_each_paradigm(pairs, self.max_per_paradigm)
        scores = score_minimal_pairs(arm.text_model(), pairs)
        paradigms = {name: score.accuracy for name, score in scores.by_paradigm.items()}
        return {"accuracy": scores.total.accuracy, **paradigms}


class PromptMeasure(Measure):
    """Scores up to 1 on the prompts of the corpus, by kind of prompt."""

    def missing_input(self, corpus: CorpusFolder) -> str | None:
        return None if corpus.prompts.exists() else "the corpus has no prompts"

    def input_files(self, corpus: CorpusFolder) -> list[Path]:
        return [corpus.prompts]

    def bounds_of(self, metric: str) -> tuple[float, float] | None:
        return 0.0, 1.0

    def compute(self, arm: TrainedArm) -> Metrics:
        lines = arm.corpus.prompts.read_text(encoding="utf-8").splitlines()
        prompts: list[dict[str, str]] = [json.loads(line) for line in lines]
        scores = self._scores(arm.text_model(), prompts)
        by_kind: dict[str, list[float]] = {}
        for prompt, score in zip(prompts, scores, strict=True):
            by_kind.setdefault(prompt["kind"], []).append(score)
        return {kind: fmean(values) for kind, values in by_kind.items()}

    def _scores(self, model: TextModel, prompts: Sequence[Mapping[str, str]]) -> list[float]:
        """Return the score of each prompt."""
        raise TypeError(f"{type(self).__name__} has no scores")


class ContinuationMeasure(PromptMeasure):
    """The accuracy on the prompts of the corpus, by kind of prompt.

    The prediction is the greedy continuation of the prompt. A model that is not causal fills in the
    gap instead, if the prompt has one.
    """

    kind: Literal["continuation"] = "continuation"

    def _scores(self, model: TextModel, prompts: Sequence[Mapping[str, str]]) -> list[float]:
        if model.is_causal or "gap" not in prompts[0]:
            accuracies = continuation_accuracies(model, prompts)
            return [float(accuracy == 1.0) for accuracy in accuracies]
        return [float(fills_correctly(model, p["gap"], p["continuation"])) for p in prompts]


class ContinuationTokenMeasure(PromptMeasure):
    """The fraction of the tokens of greedy continuations that are right, by kind of prompt."""

    kind: Literal["continuation-tokens"] = "continuation-tokens"

    def _scores(self, model: TextModel, prompts: Sequence[Mapping[str, str]]) -> list[float]:
        return continuation_accuracies(model, prompts)


def continuation_accuracies(model: TextModel, prompts: Sequence[Mapping[str, str]]) -> list[float]:
    """Return the fraction of the expected tokens that a model generates after each prompt."""
    expected = [model.tokenizer.encode(f" {prompt['continuation']}") for prompt in prompts]
    accuracies = [0.0] * len(prompts)
    for length in sorted(set(map(len, expected))):
        indices = [index for index, token_ids in enumerate(expected) if len(token_ids) == length]
        texts = [prompts[index]["prompt"] for index in indices]
        continuations = model.generate(texts, max_new_tokens=length, temperature=0)
        for index, continuation in zip(indices, continuations, strict=True):
            pairs = zip(continuation.token_ids, expected[index], strict=False)
            accuracies[index] = sum(a == b for a, b in pairs) / length
    return accuracies


def fills_correctly(model: TextModel, gap: str, expected: str) -> bool:
    """Return whether the most likely tokens for the [MASK] of a text are the expected ones."""
    expected_ids = model.tokenizer.encode(f" {expected}")
    predictions = model.fill_mask(gap.replace("[MASK]", "[MASK]" * len(expected_ids)), top_k=1)
    expected_tokens = [model.tokenizer.id_to_token(token_id) for token_id in expected_ids]
    return [best.token for best, *_ in predictions] == expected_tokens


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
