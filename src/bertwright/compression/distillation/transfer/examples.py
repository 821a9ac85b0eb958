"""Unlabelled examples, and their labels as predicted by a teacher."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
    TaskExample,
)
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.prediction import read_inputs
from bertwright.tasks.task import Task

LABELLING_KINDS = ("class", "labels", "number")
"""Output types whose labels a text alone can have."""


@dataclass(frozen=True)
class UnlabelledFile:
    """The inputs of a task in a file that can be read more than once."""

    path: Path
    task: Task

    def __iter__(self) -> Iterator[TaskExample]:
        return read_inputs(self.path, self.task)


def require_labelling(task: Task) -> None:
    """Raise UserError for a task whose labels cannot be predicted for a text alone."""
    if task.output_type.kind_name() not in (*LABELLING_KINDS, "tags"):
        raise UserError(
            f"task {task.name} needs more than a text per example: unlabelled texts cannot be used "
            f"for it"
        )


def example_texts(example: TaskExample) -> list[str]:
    """Return all texts of an example."""
    match example:
        case TaggedSentence():
            return [" ".join(example.words)]
        case ExtractiveQuestion():
            return [example.question, example.text]
        case MultipleChoice():
            return [example.text, example.question, *example.options]
        case Example():
            pair = [] if example.pair is None else [example.pair]
            return [example.text, *pair, *example.negatives]


def without_label(example: TaskExample) -> TaskExample:
    """Return an example without its label."""
    if isinstance(example, TaggedSentence):
        return replace(example, tags=None)
    return replace(example, label=None) if isinstance(example, Example) else example


def pseudo_labelled(example: TaskExample, prediction: Prediction) -> TaskExample:
    """Return an example with its own label, or else with the teacher's prediction."""
    if isinstance(example, TaggedSentence):
        return replace(example, tags=prediction.value) if example.tags is None else example
    assert isinstance(example, Example)
    return replace(example, label=prediction.value) if example.label is None else example


def to_json_line(example: TaskExample) -> str:
    """Return an example as one line of JSON, without the line break."""
    is_tagged = isinstance(example, TaggedSentence)
    names = ("words", "tags") if is_tagged else ("text", "pair", "label")
    fields = {name: value for name in names if (value := getattr(example, name)) is not None}
    return json.dumps(fields, ensure_ascii=False)


def from_json_line(line: str) -> TaskExample:
    """Return the example in a line written by :func:`to_json_line`."""
    fields: dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in json.loads(line).items()
    }
    return TaggedSentence(**fields) if "words" in fields else Example(**fields)
