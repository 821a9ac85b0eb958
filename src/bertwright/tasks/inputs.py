"""Plain texts as examples of a task."""

from collections.abc import Sequence
from typing import Any

from bertwright.core.errors import UserError
from bertwright.tasks.formats.examples import (
    Example,
    Examples,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
    TaskExample,
    require_texts,
)
from bertwright.tasks.task import Task

TaskInputs = str | Sequence[TaskExample | str | tuple[str, str]]


def as_examples(inputs: TaskInputs, task: Task) -> Examples:
    """Return plain texts or text pairs as examples of a task; words are split at whitespace.

    A string is one text. Errors: UserError for inputs that do not fit the task.
    """
    return [as_example(item, task) for item in ([inputs] if isinstance(inputs, str) else inputs)]


def as_example(item: TaskExample | str | tuple[str, ...], task: Task) -> TaskExample:
    """Return an example, a text or the texts of a pair as an example of a task."""
    if isinstance(item, TaskExample):
        require_texts(item)
        return item
    texts = _texts_of(item)
    example_type = task.output_type.example_type
    if example_type is TaggedSentence:
        return TaggedSentence(tuple(" ".join(texts).split()))
    if example_type is ExtractiveQuestion:
        if len(texts) != 2:
            raise UserError(
                f"a pair is required, a question and its text: {texts[0][:40]!r} is one text"
            )
        return ExtractiveQuestion(texts[0], texts[1])
    if example_type is MultipleChoice:
        raise UserError(
            f"task {task.name} is multiple choice: pass bertwright.MultipleChoice examples"
        )
    text, *others = texts
    if len(others) > 1:
        raise UserError(f"an input is {texts!r}: give a text, a pair of texts, or an example")
    return Example(text, others[0] if others else None)


def _texts_of(item: Any) -> tuple[str, ...]:
    """Return the texts of an input; UserError for anything else."""
    values: list[Any] = [item] if isinstance(item, str) else []
    if isinstance(item, tuple | list):
        values = [*item]
    texts = tuple(value for value in values if isinstance(value, str))
    if not texts or len(texts) < len(values):
        raise UserError(f"an input is {item!r}: give a text, a pair of texts, or an example")
    return texts
