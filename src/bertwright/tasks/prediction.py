"""Predictions for files and streams: one line in, one JSON object out, in the same order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.answers import Prediction
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import (
    AnyExample,
    Example,
    Examples,
    Options,
    Question,
    TaggedWords,
)
from bertwright.tasks.formats.lines import json_object, read_lines, suffix_of
from bertwright.tasks.formats.tables import TableReader
from bertwright.tasks.task import Task

AT_ONCE = 4096
"""Examples that are batched by length together: a stream is never held whole."""

Line = tuple[str, str]
"""Where a line stands, for messages, and its text."""


def predict_file(model: FineTuned, path: Path, skip: int = 0) -> Iterator[dict[str, Any]]:
    """Predictions for the examples of a file, but for the first ``skip``.

    ``.txt`` has a text on each line (a pair with a tab between, words set apart by white space),
    ``.jsonl`` an object; both are streamed. Other files are read as the task reads them, without
    labels. Errors: UserError, naming file and line.
    """
    return predict(model, islice(asked_in(path, model.task), skip, None))


def predict_lines(
    model: FineTuned, lines: Iterable[Line], layout: str, skip: int = 0
) -> Iterator[dict[str, Any]]:
    """Predictions for a stream of lines in the layout of a ``.txt`` or a ``.jsonl`` file."""
    return predict(model, asked_by(islice(lines, skip, None), layout, model.task))


def asked_in(path: Path, task: Task) -> Iterator[AnyExample]:
    """What a file asks of a task, without labels; files as :func:`predict_file` reads them."""
    suffix = suffix_of(path)
    if suffix not in PARSERS:
        return iter(task.read(path, labelled=False))
    lines = ((f"{path} line {number}", line) for number, line in read_lines(path))
    return asked_by(lines, suffix, task)


def asked_by(lines: Iterable[Line], layout: str, task: Task) -> Iterator[AnyExample]:
    """The same of lines in the layout of a ``.txt`` or a ``.jsonl`` file."""
    parse = PARSERS[layout]
    return (parse(where, line, task) for where, line in lines)


def predict(model: FineTuned, examples: Iterable[AnyExample]) -> Iterator[dict[str, Any]]:
    """Predictions as plain data, in the order of the examples."""
    stream = iter(examples)
    while chunk := list(islice(stream, AT_ONCE)):
        yield from as_lines(chunk, model.predict(chunk))


def as_lines(
    examples: Examples, predictions: Sequence[Prediction], task: Task | None = None
) -> Iterator[dict[str, Any]]:
    """What was asked, what was predicted and, where the task is given, what is right."""
    for example, prediction in zip(examples, predictions, strict=True):
        right = {} if task is None else {"reference": task.answer.reference(example)}
        yield {**_asked(example), **right, **prediction.as_dict()}


def _asked(example: AnyExample) -> dict[str, Any]:
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


def _from_text(where: str, line: str, task: Task) -> AnyExample:
    shapes = task.answer.shapes()
    if TaggedWords in shapes:
        return TaggedWords(tuple(line.split()), where=where)
    if Options in shapes:
        raise UserError(f"{where}: options come as JSON lines: text, question, options")
    if Question not in shapes and not asks_pairs(task):
        return Example(line.strip(), where=where)
    first, tab, second = line.partition("\t")
    if not tab:
        raise UserError(f"{where}: task {task.name} asks for a pair: set its texts apart by a tab")
    if Question in shapes:
        return Question(first.strip(), second.strip(), where=where)
    return Example(first.strip(), second.strip(), where=where)


def _from_json(where: str, line: str, task: Task) -> AnyExample:
    row, shapes = json_object(where, line), task.answer.shapes()
    if TaggedWords in shapes:
        return TaggedWords(tuple(map(str, _value(where, row, "words", list))), where=where)
    if Question in shapes:
        question, text = (_value(where, row, key, str) for key in ("question", "text"))
        return Question(question, text, identity=str(row.get("id", "")), where=where)
    if Options in shapes:
        ways = tuple(map(str, _value(where, row, "options", list)))
        if not ways:
            raise UserError(f"{where}: there are no options")
        question = _value(where, row, "question", str) if "question" in row else ""
        return Options(_value(where, row, "text", str), ways, question, where=where)
    if isinstance(task.reader, TableReader):
        return task.reader.example(where, row)
    pair = _value(where, row, "pair", str).strip() if asks_pairs(task) or "pair" in row else None
    return Example(_value(where, row, "text", str).strip(), pair, where=where)


def asks_pairs(task: Task) -> bool:
    """Whether an example of a task is two texts."""
    reader = task.reader
    by_table = isinstance(reader, TableReader) and reader.columns.second is not None
    return by_table or task.answer.own_kind() in ("closeness", "relevance")


def asks_single(task: Task) -> bool:
    """Whether an example of a task is known to be one text; what was made in Python may be both."""
    return isinstance(task.reader, TableReader) and not asks_pairs(task)


def _value(where: str, row: dict[str, Any], name: str, kind: type) -> Any:
    if name not in row:
        raise UserError(f"{where}: no key {name!r}{did_you_mean(name, row)}")
    if not isinstance(row[name], kind):
        raise UserError(f"{where}: {name!r} is no {kind.__name__}: {row[name]!r}")
    return row[name]


PARSERS: dict[str, Callable[[str, str, Task], AnyExample]] = {
    ".txt": _from_text,
    ".jsonl": _from_json,
}
"""How a line becomes an example, by the suffix of its file."""
