"""Predictions for files and streams: one line in, one JSON object out, in the same order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.answers import Prediction
from bertwright.tasks.description import columns_of, without_labels
from bertwright.tasks.encoding import Examples
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.formats.lines import json_object, read_lines, suffix_of
from bertwright.tasks.task import Task

AT_ONCE = 2048
"""Examples that are batched by length together: a stream is never held whole."""

Line = tuple[str, str]
"""Where a line stands, for messages, and its text."""


def predict_file(model: FineTuned, path: Path) -> Iterator[dict[str, Any]]:
    """Predictions for the examples of a file.

    ``.txt`` has a text on each line (a pair with a tab between, words set apart by white space),
    ``.jsonl`` an object; both are streamed. Tables and files of tagged words are read as the task
    reads them, without labels. Errors: UserError, naming file and line.
    """
    suffix = suffix_of(path)
    if suffix in PARSERS:
        lines = ((f"{path} line {number}", line) for number, line in read_lines(path))
        return predict_lines(model, lines, suffix)
    return predict(model, without_labels(model.task).read(path))


def predict_lines(model: FineTuned, lines: Iterable[Line], layout: str) -> Iterator[dict[str, Any]]:
    """Predictions for a stream of lines in the layout of a ``.txt`` or a ``.jsonl`` file."""
    parse = PARSERS[layout]
    return predict(model, (parse(where, line, model.task) for where, line in lines))


def predict(
    model: FineTuned, examples: Iterable[Example | TaggedWords]
) -> Iterator[dict[str, Any]]:
    """Predictions as plain data, in the order of the examples."""
    stream = iter(examples)
    while some := list(islice(stream, AT_ONCE)):
        chunk = cast(Examples, some)
        yield from as_lines(chunk, model.predict(chunk))


def as_lines(
    examples: Examples, predictions: Sequence[Prediction], task: Task | None = None
) -> Iterator[dict[str, Any]]:
    """What was asked, what was predicted and, where the task is given, what is right."""
    for example, prediction in zip(examples, predictions, strict=True):
        right = {} if task is None else {"reference": task.reference(example)}
        yield {**_asked(example), **right, **prediction.as_dict()}


def _asked(example: Example | TaggedWords) -> dict[str, Any]:
    if isinstance(example, TaggedWords):
        return {"words": example.words}
    pair = {} if example.second is None else {"pair": example.second}
    return {"text": example.first, **pair}


def _from_text(where: str, line: str, task: Task) -> Example | TaggedWords:
    if task.answer == "tags":
        return TaggedWords(tuple(line.split()))
    columns = columns_of(task)
    if columns is None or columns.second is None:
        return Example(line.strip())
    first, tab, second = line.partition("\t")
    if not tab:
        raise UserError(f"{where}: task {task.name} asks for a pair: set its texts apart by a tab")
    return Example(first.strip(), second.strip())


def _from_json(where: str, line: str, task: Task) -> Example | TaggedWords:
    row = json_object(where, line)
    if task.answer == "tags":
        words = _value(where, row, "words", list)
        return TaggedWords(tuple(map(str, words)))
    columns = columns_of(task)
    first, second = ("text", None) if columns is None else (columns.first, columns.second)
    return Example(
        _value(where, row, first, str).strip(),
        None if second is None else _value(where, row, second, str).strip(),
    )


def _value(where: str, row: dict[str, Any], name: str, kind: type) -> Any:
    if name not in row:
        raise UserError(f"{where}: no key {name!r}{did_you_mean(name, row)}")
    if not isinstance(row[name], kind):
        raise UserError(f"{where}: {name!r} is no {kind.__name__}: {row[name]!r}")
    return row[name]


PARSERS: dict[str, Callable[[str, str, Task], Example | TaggedWords]] = {
    ".txt": _from_text,
    ".jsonl": _from_json,
}
"""How a line becomes an example, by the suffix of its file."""
