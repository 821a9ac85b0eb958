"""Texts without labels, and what can be said of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bertwright.errors import UserError
from bertwright.tasks.answers import Prediction
from bertwright.tasks.formats.examples import (
    AnyExample,
    Example,
    Options,
    Question,
    TaggedWords,
)
from bertwright.tasks.prediction import asked_in
from bertwright.tasks.task import Task

BORNE = ("class", "labels", "number")
"""Answers that stand beside a text."""


@dataclass(frozen=True)
class InFile:
    """What a file asks of a task, read as often as it is asked for."""

    path: Path
    task: Task

    def __iter__(self) -> Iterator[AnyExample]:
        return asked_in(self.path, self.task)


def require_answers(task: Task) -> None:
    """Errors: UserError for a task whose answers no text can bear."""
    if task.answer.own_kind() not in (*BORNE, "tags"):
        raise UserError(
            f"task {task.name} asks for what a text alone does not bear: there are no transfer "
            f"texts for it"
        )


def written_in(example: AnyExample) -> list[str]:
    """What can be read in an example."""
    match example:
        case TaggedWords():
            return [" ".join(example.words)]
        case Question():
            return [example.question, example.text]
        case Options():
            return [example.first, example.question, *example.options]
        case Example():
            second = [] if example.second is None else [example.second]
            return [example.first, *second, *example.others]


def unlabelled(example: AnyExample) -> AnyExample:
    """The same, of which nothing is known."""
    if isinstance(example, TaggedWords):
        return replace(example, tags=None)
    return replace(example, label=None) if isinstance(example, Example) else example


def answered(example: AnyExample, said: Prediction) -> AnyExample:
    """The same with what a teacher says of it, unless it has a label."""
    if isinstance(example, TaggedWords):
        return replace(example, tags=said.answer) if example.tags is None else example
    assert isinstance(example, Example)
    return replace(example, label=said.answer) if example.label is None else example


def line_of(example: AnyExample) -> str:
    """An example as a line of JSON, without its end."""
    if isinstance(example, TaggedWords):
        told = {"words": example.words, "tags": example.tags}
    else:
        assert isinstance(example, Example)
        told = {"text": example.first, "pair": example.second, "label": example.label}
    known = {name: value for name, value in told.items() if value is not None}
    return json.dumps(known, ensure_ascii=False)


def example_of(line: str) -> AnyExample:
    """The example of :func:`line_of`."""
    told = json.loads(line)
    if "words" in told:
        tags = told.get("tags")
        return TaggedWords(tuple(told["words"]), None if tags is None else tuple(tags))
    label = told.get("label")
    label = tuple(label) if isinstance(label, list) else label
    return Example(told["text"], told.get("pair"), label)
