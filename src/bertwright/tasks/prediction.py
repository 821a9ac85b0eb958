"""Predictions for files and streams: one line in, one JSON object out, in the same order."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.data.readers.text_lines import (
    LocatedLine,
    format_suffix,
    parse_json_object,
    read_located_lines,
    require_key,
)
from bertwright.tasks.conformal.predictor import ConformalPredictor
from bertwright.tasks.ensemble import Ensemble
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import (
    Example,
    Examples,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
    TaskExample,
)
from bertwright.tasks.formats.multiple_choice import is_text, parse_options
from bertwright.tasks.formats.tables import TableReader
from bertwright.tasks.inputs import as_example
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task

Predictor = FineTunedModel | Ensemble | ConformalPredictor

NUM_SNIFFED_LINES = 1000
"""Number of lines used to detect the layout of a text file."""

CHUNK_SIZE = 4096
"""Number of examples batched together by length; a stream is never held in memory as a whole."""


def predict_file(
    model: Predictor, path: Path, completed: Iterable[LocatedLine] = ()
) -> Iterator[dict[str, Any]]:
    """Predict for the examples of a file, except those that ``completed`` predictions exist for.

    ``.txt`` has one text per line (the texts of a pair separated by a tab, words by whitespace),
    ``.jsonl`` one object per line; both are streamed. Other files, and a ``.txt`` in the layout of
    the training files, are read by the task's reader, without labels. Errors: UserError with file
    and line.
    """
    return predict_examples(model, *skip_completed(completed, read_inputs(path, model.task)))


def predict_lines(
    model: Predictor,
    lines: Iterable[LocatedLine],
    layout: str,
    completed: Iterable[LocatedLine] = (),
) -> Iterator[dict[str, Any]]:
    """Predict for a stream of lines in the layout of a ``.txt`` or a ``.jsonl`` file."""
    return predict_examples(
        model, *skip_completed(completed, parse_inputs(lines, layout, model.task))
    )


def read_inputs(path: Path, task: Task) -> Iterator[TaskExample]:
    """Read the unlabelled examples of a file, as :func:`predict_file` does."""
    suffix = format_suffix(path)
    if suffix not in PARSERS:
        return iter(task.read_examples(path, with_labels=False))
    return parse_inputs(read_located_lines(path), suffix, task, str(path))


def parse_inputs(
    lines: Iterable[LocatedLine], layout: str, task: Task, name: str = "standard input"
) -> Iterator[TaskExample]:
    """Parse lines in the layout of a ``.txt`` or a ``.jsonl`` file; blank JSON lines are skipped.

    Messages call the source ``name``.
    """
    parse = PARSERS[layout]
    if layout == ".jsonl":
        return (parse(location, line, task) for location, line in lines if line.strip())
    rest = iter(lines)
    head = list(islice(rest, NUM_SNIFFED_LINES))
    if task.reader.matches(head, task.labels):
        return iter(task.reader.parse_lines(name, chain(head, rest)))
    return (parse(location, line, task) for location, line in chain(head, rest))


def predict_examples(
    model: Predictor, examples: Iterable[TaskExample], num_completed: int = 0
) -> Iterator[dict[str, Any]]:
    """Return predictions as plain data, in the order of the examples.

    Those of the first ``num_completed`` examples are left out. These are still batched with the
    others of their chunk, since the last digits of a prediction depend on its batch.
    """
    stream = iter(examples)
    while chunk := list(islice(stream, CHUNK_SIZE)):
        if num_completed < len(chunk):
            predictions, num_truncated = model.predict_examples(chunk)
            records = prediction_records(chunk, predictions, num_truncated=num_truncated)
            yield from islice(records, num_completed, None)
        num_completed = max(num_completed - len(chunk), 0)


def _parse_text_line(location: str, line: str, task: Task) -> TaskExample:
    example_type = task.output_type.example_type
    if example_type is MultipleChoice:
        raise UserError(f"{location}: multiple choice needs JSON lines: text, question, options")
    pair = example_type is ExtractiveQuestion or needs_pairs(task)
    may_be_pair = pair or (task.reader.has_pairs is None and example_type is Example)
    first, *others = (part.strip() for part in (line if may_be_pair else line.strip()).split("\t"))
    if pair and len(others) != 1:
        count = "no tab" if not others else "more than one"
        raise UserError(
            f"{location}: task {task.name} needs two texts separated by a tab, there is {count}"
        )
    if others and not (may_be_pair and len(others) == 1):
        kind = "words separated by spaces" if example_type is TaggedSentence else "one text"
        if may_be_pair:
            kind = "one text, or two separated by a tab"
        raise UserError(
            f"{location}: task {task.name} needs {kind}, and there is "
            f"{count_noun(len(others), 'tab')}: if these are columns, name the file .tsv, else "
            f"write spaces instead of tabs"
        )
    return replace(as_example((first, *others), task), location=location)


def _parse_json_line(location: str, line: str, task: Task) -> TaskExample:
    record, example_type = parse_json_object(location, line), task.output_type.example_type
    if example_type is TaggedSentence:
        return TaggedSentence(_parse_words(location, record), location=location)
    if example_type is ExtractiveQuestion:
        question, text = (require_key(location, record, key) for key in ("question", "text"))
        question_id = record.get("id")
        return ExtractiveQuestion(
            question, text, id="" if question_id is None else str(question_id), location=location
        )
    if example_type is MultipleChoice:
        options = parse_options(location, require_key(location, record, "options", list))
        question = require_key(location, record, "question") if "question" in record else ""
        return MultipleChoice(
            require_key(location, record, "text"), options, question, location=location
        )
    if isinstance(task.reader, TableReader):
        return task.reader.unlabelled_example(location, record)
    pair = (
        require_key(location, record, "pair").strip()
        if needs_pairs(task) or "pair" in record
        else None
    )
    return Example(require_key(location, record, "text").strip(), pair, location=location)


def _parse_words(location: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a record, which may be numbers; UserError for anything else."""
    words = require_key(location, record, "words", list)
    if invalid := [word for word in words if not is_text(word)]:
        raise UserError(f"{location}: a word is {quote(invalid[0])}: write its text")
    return tuple(map(str, words))


def needs_pairs(task: Task) -> bool:
    """Return whether the examples of a task are text pairs."""
    return task.reader.has_pairs is True or task.output_type.needs_pair


def needs_single_text(task: Task) -> bool:
    """Return whether the examples are known to be single texts; from Python they may be either."""
    return task.reader.has_pairs is False and not needs_pairs(task)


PARSERS: dict[str, Callable[[str, str, Task], TaskExample]] = {
    ".txt": _parse_text_line,
    ".jsonl": _parse_json_line,
}
"""Parsers of a line, by file suffix."""

TRUNCATED_KEY = "truncated_tokens"
"""Key for the number of truncated tokens."""


def prediction_records(
    examples: Examples,
    predictions: Sequence[Prediction],
    task: Task | None = None,
    num_truncated: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """Return inputs and predictions; with a ``task``, also the references.

    ``num_truncated`` maps an example's index to the number of truncated tokens.
    """
    for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        reference = {} if task is None else {"reference": task.output_type.reference(example)}
        truncated = {TRUNCATED_KEY: num_truncated[index]} if index in num_truncated else {}
        yield {**example_as_dict(example), **reference, **prediction.as_dict(), **truncated}


def example_as_dict(example: TaskExample) -> dict[str, Any]:
    """Return the inputs of an example, as in the line of its prediction."""
    match example:
        case TaggedSentence():
            return {"words": example.words}
        case ExtractiveQuestion():
            id_field = {"id": example.id} if example.id else {}
            return {**id_field, "question": example.question, "text": example.text}
        case MultipleChoice():
            question = {"question": example.question} if example.question else {}
            return {"text": example.text, **question, "options": example.options}
        case Example():
            pair = {} if example.pair is None else {"pair": example.pair}
            return {"text": example.text, **pair}


def skip_completed(
    completed: Iterable[LocatedLine], examples: Iterator[TaskExample]
) -> tuple[Iterator[TaskExample], int]:
    """Return the examples from the first chunk that is not completed, and how many of them are.

    Errors: UserError if a completed line belongs to another example.
    """
    started: list[TaskExample] = []
    for location, line in completed:
        prediction, example = parse_json_object(location, line), next(examples, None)
        inputs = {} if example is None else json.loads(json.dumps(example_as_dict(example)))
        if example is None or {**prediction, **inputs} != prediction:
            raise UserError(f"{location} is of another text: remove the file to start again")
        if len(started) == CHUNK_SIZE:
            started.clear()
        started.append(example)
    return chain(started, examples), len(started)
