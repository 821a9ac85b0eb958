"""Classification without training: a prompt with some solved examples, and the label that a model
finds the likeliest to follow (Brown et al. 2020, section 2; Schick and Schütze 2021 for clozes).

A causal model is asked how likely the words of each label are where the label stands; a masked one
how likely they are where all of them are hidden. Labels are compared by one of three numbers:

- ``sum``: log p(words | prompt), which favours words of few pieces;
- ``mean``: the same per piece;
- ``prior``: the sum less what it is where the text is empty and no example is shown (Brown et al.
  2020, section 2.4), so that words which are likely anyway do not win by that.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator

from bertwright.axes import Settings, explain
from bertwright.errors import UserError
from bertwright.model.likelihood import log_probabilities
from bertwright.model.scoring import cloze_log_probabilities
from bertwright.model.text_model import TextModel
from bertwright.randomness import Permutation, key
from bertwright.statistics import Estimate, estimate
from bertwright.tasks.formats.examples import Example
from bertwright.text.overlap import standing_in
from bertwright.text.shards import Data

AT_ONCE = 256
"""Candidates that are scored together."""

LABEL = "{label}"
Comparison = Literal["sum", "mean", "prior"]


class Prompt(Settings):
    """How an example is told to a model.

    ``template`` holds ``{text}``, ``{pair}`` where there is a second text, and ``{label}`` once;
    ``words`` are those that stand for a label, the label itself where none are given; ``between``
    parts the examples.
    """

    template: str = "{text}\nLabel: {label}"
    words: dict[str, str] = Field(default={})
    between: str = "\n\n"
    comparison: Comparison = "sum"

    @field_validator("template")
    @classmethod
    def _one_label(cls, template: str) -> str:
        known = set(re.findall(r"\{(\w*)\}", template))
        if odd := sorted(known - {"text", "pair", "label"}):
            raise ValueError(f"knows {{text}}, {{pair}} and {{label}}, not {{{odd[0]}}}")
        if template.count(LABEL) != 1 or "text" not in known:
            raise ValueError(f"must hold {{text}}, and {{label}} once: {template!r}")
        return template

    def filled(self, example: Example, label: str) -> tuple[str, int, int]:
        """An example with a label, and from where to where the words of the label stand.

        They begin with the space before them: with it a word is one piece in many vocabularies.
        """
        before, after = self.template.split(LABEL)
        before, after = (_put(part, example) for part in (before, after))
        words = self.words.get(label, label)
        stripped = before.rstrip(" ")
        text = before + words
        return text + after, len(stripped), len(text)


@dataclass(frozen=True)
class Candidate:
    """One label of one example as a row of pieces; the words of the label are ``part`` of it."""

    pieces: tuple[int, ...]
    part: slice


@dataclass(frozen=True)
class Prompted:
    """How often a model was right, by the seed that chose and ordered the shots.

    ``prompt`` is what was asked first, with its right label. ``read`` says of each example whether
    its text stood in what the model was trained on; None where nobody looked.
    """

    shots: int
    labels: tuple[str, ...]
    majority: float
    examples: int
    prompt: str
    predictions: tuple[tuple[str, ...], ...] = field(repr=False)
    right: tuple[str, ...] = field(repr=False)
    read: tuple[bool, ...] | None = field(default=None, repr=False)

    @property
    def scores(self) -> tuple[float, ...]:
        """The accuracy of each seed."""
        return self._accuracies([True] * len(self.right))

    @property
    def estimate(self) -> Estimate:
        """Mean and 95 % interval over the seeds."""
        return estimate(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """What ``prompt --json`` prints; the interval is null for a single seed."""
        found = self.estimate
        return {
            "shots": self.shots,
            "labels": list(self.labels),
            "examples": self.examples,
            "metric": "accuracy",
            "scores": list(self.scores),
            "mean": found.mean,
            "interval": found.interval,
            "majority": self.majority,
            **self._by_what_was_read(),
            "prompt": self.prompt,
        }

    def _by_what_was_read(self) -> dict[str, Any]:
        """How many texts the model had read, and the accuracy among the others."""
        if self.read is None:
            return {}
        unread = [not read for read in self.read]
        accuracy = float(np.mean(self._accuracies(unread))) if any(unread) else None
        return {"read": sum(self.read), "mean_of_unread": accuracy}

    def _accuracies(self, among: Sequence[bool]) -> tuple[float, ...]:
        """Of each seed, among some of the examples."""
        return tuple(
            float(
                np.mean(
                    [a == b for a, b, counts in zip(p, self.right, among, strict=True) if counts]
                )
            )
            for p in self.predictions
        )


def prompt(
    model: TextModel,
    asked: Sequence[Example],
    shots: int,
    *,
    solved: Sequence[Example] | None = None,
    seeds: int = 1,
    training: Data | None = None,
    **settings: Any,
) -> Prompted:
    """Ask a model for the labels of examples, each behind ``shots`` solved ones.

    Shots are drawn from ``solved``, anew for every seed; without any, from the other examples that
    are asked. ``training`` are the data of the model, where it shall be told how many of the texts
    stand in them. ``settings`` are those of :class:`Prompt`. Errors: UserError for a setting that
    cannot be, too few examples, a prompt that is too long, and a model that names no pieces.
    """
    try:
        told = Prompt.model_validate(settings)
    except ValidationError as error:
        raise explain(error, "prompt") from None
    asked = list(asked)
    labels = tuple(dict.fromkeys(str(e.label) for e in [*(solved or ()), *asked]))
    _check(model, told, asked, labels)
    prior = _prior(model, told, asked, labels)
    pool = asked if solved is None else list(solved)
    predictions: list[tuple[str, ...]] = []
    for seed in range(seeds if shots else 1):
        drawn = _drawn(pool, seed)
        rows = [
            _candidate(model, told, _shots(drawn, example, shots), example, label)
            for example in asked
            for label in labels
        ]
        scores = _scores(model, told, rows).reshape(len(asked), len(labels)) - prior
        predictions.append(tuple(labels[best] for best in scores.argmax(axis=1)))
    right = [str(example.label) for example in asked]
    first = _shots(_drawn(pool, 0), asked[0], shots)
    return Prompted(
        shots,
        labels,
        Counter(right).most_common(1)[0][1] / len(right),
        len(asked),
        _whole(told, first, asked[0], right[0])[0],
        tuple(predictions),
        tuple(right),
        None if training is None else _read(training, asked),
    )


def _read(training: Data, asked: Sequence[Example]) -> tuple[bool, ...]:
    """Whether either text of each example stands in the data."""
    first = standing_in(training, (example.first for example in asked))
    second = standing_in(training, (example.second or "" for example in asked))
    return tuple(a or b for a, b in zip(first, second, strict=True))


def _check(model: TextModel, told: Prompt, asked: Sequence[Example], labels: Sequence[str]) -> None:
    model.require_output("prompt")
    model.require_words("prompt")
    if not asked:
        raise UserError("there are no examples to ask")
    if any(example.label is None for example in asked):
        raise UserError("every example needs its label, or nobody knows what is right")
    if unknown := sorted(set(told.words) - set(labels)):
        raise UserError(f"prompt: words: no example has the label {unknown[0]!r}")
    paired = "{pair}" in told.template
    if any((example.second is not None) != paired for example in asked):
        wanted = "a column of second texts" if paired else "a place, or second texts are left out"
        raise UserError(f"prompt: template: {{pair}} needs {wanted}")
    words = [told.words.get(label, label) for label in labels]
    if len(set(words)) < len(words) or "" in words:
        raise UserError(f"prompt: words: every label needs words of its own: {', '.join(words)}")


def _drawn(pool: Sequence[Example], seed: int) -> list[Example]:
    """The solved examples in the order of a seed."""
    if not pool:
        return []
    return [pool[each] for each in Permutation(len(pool), key(seed, "shots"))(np.arange(len(pool)))]


def _shots(drawn: Sequence[Example], example: Example, shots: int) -> list[Example]:
    """The first solved examples, but for those that have the texts which are asked about."""
    same = (example.first, example.second)
    found = list(islice((d for d in drawn if (d.first, d.second) != same), shots))
    if len(found) < shots:
        raise UserError(f"{shots} shots need as many other examples; there are {len(found)}")
    return found


def _whole(
    told: Prompt, shots: Sequence[Example], example: Example, label: str
) -> tuple[str, int, int]:
    """A prompt with its shots, and from where to where the words of the last label stand."""
    before = "".join(told.filled(shot, str(shot.label))[0] + told.between for shot in shots)
    text, start, stop = told.filled(example, label)
    return before + text, len(before) + start, len(before) + stop


def _candidate(
    model: TextModel, told: Prompt, shots: Sequence[Example], example: Example, label: str
) -> Candidate:
    tokenizer, longest = model.tokenizer, model.model.encoder.longest
    ids, part = tokenizer.encode_part(*_whole(told, shots, example, label))
    if part.start == part.stop:
        raise UserError(f"the tokenizer has no piece for the label {label!r}: give it other words")
    specials = tokenizer.specials
    if model.continues:
        opening = model.model.recipe.assembly.opening(specials)
        pieces = (opening, *ids[: part.stop])
    else:
        pieces = (specials.start, *ids, specials.end)
    if longest is not None and len(pieces) > longest:
        raise UserError(
            f"a prompt with {len(shots)} shots has {len(pieces)} pieces, more than the {longest} "
            f"that the model reads: take fewer shots, or shorter ones"
        )
    return Candidate(pieces, slice(part.start + 1, part.stop + 1))


def _prior(
    model: TextModel, told: Prompt, asked: Sequence[Example], labels: Sequence[str]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(labels,): what the comparison takes off."""
    if told.comparison != "prior":
        return np.zeros(len(labels))
    nothing = replace(asked[0], first="", second=None if asked[0].second is None else "")
    return _scores(model, told, [_candidate(model, told, [], nothing, each) for each in labels])


def _scores(
    model: TextModel, told: Prompt, rows: Sequence[Candidate]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(rows,): the number by which labels are compared, before any prior is taken off."""
    of = np.mean if told.comparison == "mean" else np.sum
    return np.array([float(of(logs)) for some in _some(rows) for logs in _logs(model, some)])


def _logs(model: TextModel, rows: Sequence[Candidate]) -> list[list[float]]:
    pieces, parts = [row.pieces for row in rows], [row.part for row in rows]
    if not model.continues:
        return cloze_log_probabilities(model.model, model.tokenizer, pieces, parts)
    logs = log_probabilities(model.model, pieces, model.tokenizer.specials.pad)
    return [found[part.start - 1 :] for found, part in zip(logs, parts, strict=True)]


def _some(rows: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    for start in range(0, len(rows), AT_ONCE):
        yield rows[start : start + AT_ONCE]


def _put(part: str, example: Example) -> str:
    """A part of a template with its texts; what they hold is no part of the template."""
    texts: Mapping[str, str] = {"text": example.first, "pair": example.second or ""}
    return re.sub(r"\{(text|pair)\}", lambda found: texts[found[1]], part)
