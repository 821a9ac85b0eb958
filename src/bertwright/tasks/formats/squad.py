"""Extractive question answering files in the format of SQuAD (1.1 and 2.0)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from bertwright.core.errors import UserError
from bertwright.core.files import loads_json
from bertwright.data.readers.text_lines import heal_surrogates, read_all_text, require_key
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import ExtractiveQuestion


class SquadReader(ExampleReader):
    """A JSON file ``{data: [{paragraphs: [{context, qas: [{id, question, answers}]}]}]}``.

    ``answerable_only`` leaves out questions without an answer.
    """

    kind: Literal["questions"] = "questions"
    answerable_only: bool = False

    contents: ClassVar[str] = "questions"

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[ExtractiveQuestion]:
        """Iterate over the questions of a file.

        Errors: UserError with file and question, for a missing key, and for an answer that the text
        does not have at its start.
        """
        ids: set[str] = set()
        for question in _iter_questions(path, read_json(path), with_labels):
            if question.answers == () and self.answerable_only:
                continue
            if question.id in ids:
                raise UserError(f"{question.location} occurs twice: give each question a unique id")
            ids.add(question.id)
            yield question


def read_json(path: Path) -> Any:
    """Read a JSON file, plain or gzipped; UserError if it is not JSON."""
    text = read_all_text(path)
    try:
        return heal_surrogates(text, loads_json(text))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} line {error.lineno} is not JSON: {error.msg}") from error
    except ValueError as error:
        raise UserError(f"{path} is not readable JSON: {error}") from error


def _iter_questions(path: Path, data: Any, with_labels: bool) -> Iterator[ExtractiveQuestion]:
    for article in require_key(str(path), data, "data", list):
        title = article.get("title", "") if isinstance(article, Mapping) else ""
        location = f"{path}, {title}" if title else str(path)
        for paragraph in require_key(location, article, "paragraphs", list):
            text = require_key(location, paragraph, "context")
            for item in require_key(location, paragraph, "qas", list):
                item_id = str(require_key(location, item, "id", (str, int)))
                where = f"{path}, question {item_id}"
                question = require_key(where, item, "question").strip()
                answers, starts = _parse_answers(where, item, text) if with_labels else (None, ())
                yield ExtractiveQuestion(question, text, answers, starts, item_id, where)


def _parse_answers(
    location: str, question: Any, text: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if question.get("is_impossible"):
        return (), ()
    answers: list[str] = []
    starts: list[int] = []
    for answer in require_key(location, question, "answers", list):
        answer_text = require_key(location, answer, "text")
        start = require_key(location, answer, "answer_start", int)
        if not answer_text.strip():
            raise UserError(f"{location}: an answer is empty: set is_impossible, or leave it out")
        if start < 0 or text[start : start + len(answer_text)] != answer_text:
            raise UserError(
                f"{location}: the answer {answer_text!r} is not at character {start} of its text, "
                f"but {text[start : start + len(answer_text)]!r} is: fix answer_start"
            )
        answers.append(answer_text)
        starts.append(start)
    return tuple(answers), tuple(starts)
