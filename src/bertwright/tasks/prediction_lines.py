"""Predictions as lines of JSON, and going on behind the lines that an interrupted run has kept."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bertwright.errors import UserError
from bertwright.tasks.answers import Prediction
from bertwright.tasks.formats.examples import (
    AnyExample,
    Example,
    Examples,
    Options,
    Question,
    TaggedWords,
)
from bertwright.tasks.formats.lines import Line, json_object
from bertwright.tasks.task import Task

CUT = "cut_pieces"
"""The key of how much of a text was not read."""


def as_lines(
    examples: Examples,
    predictions: Sequence[Prediction],
    task: Task | None = None,
    num_cut: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """What was asked, what was predicted and, where the task is given, what is right; how many
    pieces were cut from an example, by its number."""
    for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        right = {} if task is None else {"reference": task.answer.reference(example)}
        cut = {CUT: num_cut[number]} if number in num_cut else {}
        yield {**asked(example), **right, **prediction.as_dict(), **cut}


def asked(example: AnyExample) -> dict[str, Any]:
    """What stands of an example in the line of its prediction."""
    match example:
        case TaggedWords():
            return {"words": example.words}
        case Question():
            named = {"id": example.identity} if example.identity else {}
            return {**named, "question": example.question, "text": example.text}
        case Options():
            asked = {"question": example.question} if example.question else {}
            return {"text": example.first, **asked, "options": example.options}
        case Example():
            pair = {} if example.second is None else {"pair": example.second}
            return {"text": example.first, **pair}


def behind(kept: Iterable[Line], examples: Iterator[AnyExample]) -> Iterator[AnyExample]:
    """Return the examples behind those whose predictions are kept.

    Errors: UserError where a line is of another example.
    """
    for where, line in kept:
        prediction, example = json_object(where, line), next(examples, None)
        if example is None or {**prediction, **_plain(asked(example))} != prediction:
            raise UserError(f"{where} is of another text: remove the file to begin anew")
    return examples


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value as it is read back from a file."""
    return json.loads(json.dumps(value))
