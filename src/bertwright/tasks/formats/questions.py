"""Files of questions whose answers are spans of a text, as SQuAD writes them (1.1 and 2.0)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from bertwright.errors import UserError
from bertwright.files import json_value
from bertwright.tasks.formats.examples import Question
from bertwright.tasks.formats.lines import whole_text, writable
from bertwright.tasks.formats.reader import Reader


class QuestionReader(Reader):
    """A JSON file ``{data: [{paragraphs: [{context, qas: [{id, question, answers}]}]}]}``.

    Where only ``answerable`` ones are asked, those that have no answer are left out.
    """

    kind: Literal["questions"] = "questions"
    answerable: bool = False

    def read(self, path: Path, labelled: bool = True) -> list[Question]:
        """Errors: UserError that names the file and the question for a key that is missing, and for
        an answer that does not stand in its text where it is said to."""
        found = [
            question
            for question in _questions(path, json_of(path), labelled)
            if question.answers != () or not self.answerable
        ]
        if not found:
            raise UserError(f"{path} holds no questions")
        known: set[str] = set()
        for question in found:
            if question.identity in known:
                raise UserError(f"{question.where} stands there twice: give each an id of its own")
            known.add(question.identity)
        return found


def json_of(path: Path) -> Any:
    """What a JSON file holds, plain or gzipped; UserError where it is none."""
    text = whole_text(path)
    try:
        return writable(text, json_value(text))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} line {error.lineno} is not JSON: {error.msg}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON that can be read: {error}") from error


def value_of(where: str, of: Any, key: str, kind: type | tuple[type, ...]) -> Any:
    """The value of a key; UserError where it is not there, or of another kind."""
    if not isinstance(of, Mapping) or key not in of:
        raise UserError(f"{where}: no key {key!r}")
    value: Any = of[key]
    if not isinstance(value, kind):
        raise UserError(f"{where}: {key!r} is {type(value).__name__}, which it cannot be")
    return value


def _questions(path: Path, data: Any, labelled: bool) -> Iterator[Question]:
    for article in value_of(str(path), data, "data", list):
        title = article.get("title", "") if isinstance(article, Mapping) else ""
        place = f"{path}, {title}" if title else str(path)
        for paragraph in value_of(place, article, "paragraphs", list):
            text = value_of(place, paragraph, "context", str)
            for asked in value_of(place, paragraph, "qas", list):
                identity = str(value_of(place, asked, "id", (str, int)))
                where = f"{path}, question {identity}"
                question = value_of(where, asked, "question", str).strip()
                answers, starts = _answers(where, asked, text) if labelled else (None, ())
                yield Question(question, text, answers, starts, identity, where)


def _answers(where: str, asked: Any, text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if asked.get("is_impossible"):
        return (), ()
    answers: list[str] = []
    starts: list[int] = []
    for answer in value_of(where, asked, "answers", list):
        said = value_of(where, answer, "text", str)
        start = value_of(where, answer, "answer_start", int)
        if not said.strip():
            raise UserError(f"{where}: an answer is empty: say is_impossible, or leave it out")
        if start < 0 or text[start : start + len(said)] != said:
            raise UserError(
                f"{where}: the answer {said!r} does not stand at character {start} of its text, "
                f"where {text[start : start + len(said)]!r} does: mend answer_start"
            )
        answers.append(said)
        starts.append(start)
    return tuple(answers), tuple(starts)
