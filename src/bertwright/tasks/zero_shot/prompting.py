"""Few-shot classification by prompting, without training.

A prompt contains some labelled examples, and the model predicts the label with the highest
likelihood (Brown et al. 2020, section 2; Schick and Schütze 2021 for clozes). A causal model scores
the words of each label after the prompt; a masked model scores them while all of them are masked.
Labels are compared by one of three scores:

- ``sum``: log p(words | prompt), which favours words of few tokens;
- ``mean``: the sum divided by the number of tokens;
- ``prior``: the sum minus the sum for an empty text without examples (Brown et al. 2020, section
  2.4), so that labels which are likely anywhere have no advantage.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from bertwright.core.config import Settings, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.core.statistics import Estimate, estimate
from bertwright.data.shards.contamination import find_contaminated
from bertwright.data.shards.dataset import Dataset
from bertwright.models.scoring.likelihood import cloze_log_probabilities, token_log_probabilities
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example

CHUNK_SIZE = 256
"""Number of candidates scored together."""

LABEL = "{label}"
LabelComparison = Literal["sum", "mean", "prior"]


class PromptConfig(Settings):
    """Settings of the prompts.

    ``template`` contains ``{text}``, ``{pair}`` for text pairs, and ``{label}`` once. ``words``
    maps labels to words; by default a label is its own word. ``separator`` joins the examples.
    """

    template: str = "{text}\nLabel: {label}"
    words: dict[str, str] = Field(default={})
    separator: str = "\n\n"
    comparison: LabelComparison = "sum"

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        fields = set(re.findall(r"\{(\w*)\}", template))
        if unknown := sorted(fields - {"text", "pair", "label"}):
            raise ValueError(f"supports {{text}}, {{pair}} and {{label}}, not {{{unknown[0]}}}")
        if template.count(LABEL) != 1 or "text" not in fields:
            raise ValueError(f"must contain {{text}}, and {{label}} once: {template!r}")
        return template

    def fill(self, example: Example, label: str) -> tuple[str, int, int]:
        """Return an example filled in with a label, and start and end of the words of the label.

        The words include the preceding space: with it, a word is one token in many vocabularies.
        """
        before, after = self.template.split(LABEL)
        before, after = (_fill_texts(part, example) for part in (before, after))
        words = self.words.get(label, label)
        stripped = before.rstrip(" ")
        text = before + words
        return text + after, len(stripped), len(text)


@dataclass(frozen=True)
class PromptCandidate:
    """One label of one example as token ids, with the slice of the label's words."""

    token_ids: tuple[int, ...]
    label_slice: slice


@dataclass(frozen=True)
class PromptResult:
    """The predictions of a model by seed; the seed selects and orders the demonstrations.

    ``prompt`` is the first prompt with its correct label. ``is_contaminated`` tells for each
    example whether its text is in the training data; None if that was not checked.
    """

    num_shots: int
    labels: tuple[str, ...]
    majority_accuracy: float
    num_examples: int
    prompt: str
    predictions: tuple[tuple[str, ...], ...] = field(repr=False)
    references: tuple[str, ...] = field(repr=False)
    is_contaminated: tuple[bool, ...] | None = field(default=None, repr=False)

    @property
    def scores(self) -> tuple[float, ...]:
        """The accuracy of each seed."""
        return self._accuracies([True] * len(self.references))

    @property
    def estimate(self) -> Estimate:
        """Mean and 95 % interval over the seeds."""
        return estimate(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``prompt --json``; the interval is null for a single seed."""
        estimate = self.estimate
        return {
            "shots": self.num_shots,
            "labels": list(self.labels),
            "examples": self.num_examples,
            "metric": "accuracy",
            "scores": list(self.scores),
            "mean": estimate.mean,
            "interval": estimate.interval,
            "majority_accuracy": self.majority_accuracy,
            **self._contamination_as_dict(),
            "prompt": self.prompt,
        }

    def _contamination_as_dict(self) -> dict[str, Any]:
        """Return the number of contaminated texts, and the accuracy on the others."""
        if self.is_contaminated is None:
            return {}
        is_clean = [not contaminated for contaminated in self.is_contaminated]
        accuracy = float(np.mean(self._accuracies(is_clean))) if any(is_clean) else None
        return {"contaminated": sum(self.is_contaminated), "mean_uncontaminated": accuracy}

    def _accuracies(self, mask: Sequence[bool]) -> tuple[float, ...]:
        """Return the accuracy of each seed on the examples in the mask."""
        return tuple(
            float(np.mean([a == b for a, b, m in zip(p, self.references, mask, strict=True) if m]))
            for p in self.predictions
        )


def prompt(
    model: TextModel,
    examples: Sequence[Example],
    num_shots: int,
    *,
    demonstrations: Sequence[Example] | None = None,
    seeds: int = 1,
    training_data: Dataset | None = None,
    **settings: Any,
) -> PromptResult:
    """Predict the labels of examples from prompts with ``num_shots`` demonstrations.

    Each seed draws them from ``demonstrations``, by default from the other examples.
    ``training_data`` is the pretraining data of the model; with it, contaminated examples are
    counted. ``settings`` are fields of :class:`PromptConfig`. Errors: UserError for an invalid
    setting, too few examples, a prompt that is too long, and a model without a language-model head.
    """
    try:
        config = PromptConfig.model_validate(settings)
    except ValidationError as error:
        raise to_user_error(error, "prompt") from None
    examples = list(examples)
    labels = tuple(dict.fromkeys(str(e.label) for e in [*(demonstrations or ()), *examples]))
    _check_prompt(model, config, examples, labels)
    prior = _prior(model, config, examples, labels)
    pool = examples if demonstrations is None else list(demonstrations)
    predictions: list[tuple[str, ...]] = []
    for seed in range(seeds if num_shots else 1):
        shuffled = _shuffle(pool, seed)
        candidates = [
            _build_candidate(
                model, config, _choose_shots(shuffled, example, num_shots), example, label
            )
            for example in examples
            for label in labels
        ]
        scores = _score_candidates(model, config, candidates)
        scores = scores.reshape(len(examples), len(labels)) - prior
        predictions.append(tuple(labels[best] for best in scores.argmax(axis=1)))
    references = [str(example.label) for example in examples]
    shots = _choose_shots(_shuffle(pool, 0), examples[0], num_shots)
    return PromptResult(
        num_shots,
        labels,
        Counter(references).most_common(1)[0][1] / len(references),
        len(examples),
        _full_prompt(config, shots, examples[0], references[0])[0],
        tuple(predictions),
        tuple(references),
        None if training_data is None else _find_contaminated(training_data, examples),
    )


def _find_contaminated(training_data: Dataset, examples: Sequence[Example]) -> tuple[bool, ...]:
    """Return whether either text of each example occurs in the training data."""
    first = find_contaminated(training_data, (example.text for example in examples))
    second = find_contaminated(training_data, (example.pair or "" for example in examples))
    return tuple(a or b for a, b in zip(first, second, strict=True))


def _check_prompt(
    model: TextModel, config: PromptConfig, examples: Sequence[Example], labels: Sequence[str]
) -> None:
    model.require_lm_head("prompt")
    model.require_text_tokenizer("prompt")
    if not examples:
        raise UserError("there are no examples")
    if any(example.label is None for example in examples):
        raise UserError("every example needs a label, to score the predictions")
    if unknown := sorted(set(config.words) - set(labels)):
        raise UserError(f"prompt: words: no example has the label {unknown[0]!r}")
    has_pair = "{pair}" in config.template
    if any((example.pair is not None) != has_pair for example in examples):
        if has_pair:
            raise UserError("prompt: template: {pair} needs a column of second texts")
        raise UserError("prompt: template: add {pair}, or second texts are left out")
    words = [config.words.get(label, label) for label in labels]
    if len(set(words)) < len(words) or "" in words:
        raise UserError(f"prompt: words: every label needs different words: {', '.join(words)}")


def _shuffle(pool: Sequence[Example], seed: int) -> list[Example]:
    """Return the demonstrations in the order of a seed."""
    if not pool:
        return []
    return [
        pool[index]
        for index in RandomPermutation(len(pool), stream_key(seed, "shots"))(np.arange(len(pool)))
    ]


def _choose_shots(
    demonstrations: Sequence[Example], example: Example, num_shots: int
) -> list[Example]:
    """Return the first demonstrations, except those with the texts of the example."""
    texts = (example.text, example.pair)
    shots = list(islice((d for d in demonstrations if (d.text, d.pair) != texts), num_shots))
    if len(shots) < num_shots:
        raise UserError(
            f"a prompt with {count_noun(num_shots, 'shot')} needs as many other examples, and "
            f"there are {len(shots)}"
        )
    return shots


def _full_prompt(
    config: PromptConfig, shots: Sequence[Example], example: Example, label: str
) -> tuple[str, int, int]:
    """Return a prompt with its demonstrations, and start and end of the last label's words."""
    before = "".join(config.fill(shot, str(shot.label))[0] + config.separator for shot in shots)
    text, start, stop = config.fill(example, label)
    return before + text, len(before) + start, len(before) + stop


def _build_candidate(
    model: TextModel, config: PromptConfig, shots: Sequence[Example], example: Example, label: str
) -> PromptCandidate:
    tokenizer, max_length = model.tokenizer, model.model.encoder.max_length
    text, start, stop = _full_prompt(config, shots, example, label)
    ids, offsets = tokenizer.encode_with_offsets(text)
    label_tokens = [n for n, (begin, end) in enumerate(offsets) if begin < stop and end > start]
    if not label_tokens:
        raise UserError(f"the tokenizer has no token for the label {label!r}: give it other words")
    special, assembly = tokenizer.special_tokens, model.model.recipe.assembly
    if model.is_causal:
        start_id = assembly.start_token(special)
        token_ids = (start_id, *ids[: label_tokens[-1] + 1])
    else:
        token_ids = tuple(assembly.add_special_tokens(ids, special))
    if max_length is not None and len(token_ids) > max_length:
        raise UserError(
            f"a prompt with {count_noun(len(shots), 'shot')} has {len(token_ids)} tokens, more "
            f"than the {max_length} of the model: use fewer shots, or shorter ones"
        )
    start = 1 if model.is_causal else assembly.text_start
    return PromptCandidate(token_ids, slice(label_tokens[0] + start, label_tokens[-1] + start + 1))


def _prior(
    model: TextModel, config: PromptConfig, examples: Sequence[Example], labels: Sequence[str]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the prior scores (labels,), which are subtracted from the scores of the labels."""
    if config.comparison != "prior":
        return np.zeros(len(labels))
    empty = replace(examples[0], text="", pair=None if examples[0].pair is None else "")
    return _score_candidates(
        model, config, [_build_candidate(model, config, [], empty, label) for label in labels]
    )


def _score_candidates(
    model: TextModel, config: PromptConfig, candidates: Sequence[PromptCandidate]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the scores (N,) of candidates, before the prior is subtracted."""
    reduce = np.mean if config.comparison == "mean" else np.sum
    return np.array(
        [
            float(reduce(log_probabilities))
            for start in range(0, len(candidates), CHUNK_SIZE)
            for log_probabilities in _label_log_probabilities(
                model, candidates[start : start + CHUNK_SIZE]
            )
        ]
    )


def _label_log_probabilities(
    model: TextModel, candidates: Sequence[PromptCandidate]
) -> list[list[float]]:
    token_ids, slices = [c.token_ids for c in candidates], [c.label_slice for c in candidates]
    if not model.is_causal:
        return cloze_log_probabilities(model.model, model.tokenizer, token_ids, slices)
    by_candidate = token_log_probabilities(
        model.model, token_ids, model.tokenizer.special_tokens.pad
    )
    return [values[s.start - 1 :] for values, s in zip(by_candidate, slices, strict=True)]


def _fill_texts(template: str, example: Example) -> str:
    """Fill texts into a part of a template, without parsing the texts as templates."""
    texts: Mapping[str, str] = {"text": example.text, "pair": example.pair or ""}
    return re.sub(r"\{(text|pair)\}", lambda match: texts[match[1]], template)
