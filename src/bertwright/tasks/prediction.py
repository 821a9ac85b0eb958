"""Predictions for files and streams: one line in, one JSON object out, in the same order."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.encoding import pieces_cut
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import (
    AnyExample,
    Example,
    Options,
    Question,
    TaggedWords,
)
from bertwright.tasks.formats.lines import Line, json_object, located_lines, suffix_of
from bertwright.tasks.formats.tables import TableReader
from bertwright.tasks.prediction_lines import as_lines, behind
from bertwright.tasks.task import Task

LOOKED_AT = 1000
"""Lines from which it is told whether a text is in the layout of the training files."""

AT_ONCE = 4096
"""Examples that are batched by length together: a stream is never held whole."""


def predict_file(
    model: FineTuned, path: Path, kept: Iterable[Line] = ()
) -> Iterator[dict[str, Any]]:
    """Predictions for the examples of a file behind those whose predictions are ``kept``.

    ``.txt`` has a text on each line (a pair with a tab between, words set apart by white space),
    ``.jsonl`` an object; both are streamed. Other files, and a ``.txt`` that has the layout of the
    files that the model was trained on, are read as the task reads them, without labels. Errors:
    UserError, naming file and line.
    """
    return predict(model, behind(kept, asked_in(path, model.task)))


def predict_lines(
    model: FineTuned, lines: Iterable[Line], layout: str, kept: Iterable[Line] = ()
) -> Iterator[dict[str, Any]]:
    """Predictions for a stream of lines in the layout of a ``.txt`` or a ``.jsonl`` file."""
    return predict(model, behind(kept, asked_by(lines, layout, model.task)))


def asked_in(path: Path, task: Task) -> Iterator[AnyExample]:
    """What a file asks of a task, without labels; files as :func:`predict_file` reads them."""
    suffix = suffix_of(path)
    if suffix not in PARSERS:
        return iter(task.read(path, labelled=False))
    return asked_by(located_lines(path), suffix, task, str(path))


def asked_by(
    lines: Iterable[Line], layout: str, task: Task, name: str = "standard input"
) -> Iterator[AnyExample]:
    """The same of lines in the layout of a ``.txt`` or a ``.jsonl`` file, which may have lines
    without an object; messages call all of them ``name``."""
    parse = PARSERS[layout]
    if layout == ".jsonl":
        return (parse(where, line, task) for where, line in lines if line.strip())
    rest = iter(lines)
    first = list(islice(rest, LOOKED_AT))
    if task.reader.claims(first, task.labels):
        return iter(task.reader.parse(name, chain(first, rest)))
    return (parse(where, line, task) for where, line in chain(first, rest))


def predict(model: FineTuned, examples: Iterable[AnyExample]) -> Iterator[dict[str, Any]]:
    """Predictions as plain data, in the order of the examples."""
    stream = iter(examples)
    while chunk := list(islice(stream, AT_ONCE)):
        rows = model.answering.rows(model.maker, chunk)
        said = model.answering.predictions(rows, model.outputs(rows), chunk)
        yield from as_lines(chunk, said, num_cut=pieces_cut(rows))


def _from_text(where: str, line: str, task: Task) -> AnyExample:
    shapes = task.answer.shapes()
    if Options in shapes:
        raise UserError(f"{where}: options come as JSON lines: text, question, options")
    pair = Question in shapes or asks_pairs(task)
    first, *others = (part.strip() for part in (line if pair else line.strip()).split("\t"))
    if pair and len(others) != 1:
        found = "no tab" if not others else "more than one"
        raise UserError(
            f"{where}: task {task.name} asks for two texts with a tab between, there is {found}"
        )
    if not pair and others:
        kind = "words with spaces between" if TaggedWords in shapes else "one text"
        raise UserError(
            f"{where}: task {task.name} asks for {kind}, and there is a tab: if these are columns, "
            f"name the file .tsv, else take the tab out"
        )
    if TaggedWords in shapes:
        return TaggedWords(tuple(first.split()), where=where)
    if Question in shapes:
        return Question(first, others[0], where=where)
    return Example(first, others[0] if others else None, where=where)


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
    return task.reader.pairs is True or task.answer.own_kind() in ("closeness", "relevance")


def asks_single(task: Task) -> bool:
    """Whether an example of a task is known to be one text; what was made in Python may be both."""
    return task.reader.pairs is False and not asks_pairs(task)


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
