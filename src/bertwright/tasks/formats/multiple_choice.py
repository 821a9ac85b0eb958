"""Multiple-choice files: RACE, SWAG, CODAH, DREAM."""

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.data.readers.text_lines import (
    parse_json_object,
    read_all_text,
    read_located_lines,
    require_key,
)
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import MultipleChoice
from bertwright.tasks.formats.squad import read_json
from bertwright.tasks.formats.tables import parse_text, read_table


class MultipleChoiceReader(ExampleReader):
    """A base class of multiple-choice readers."""

    contents: ClassVar[str] = "questions"


class RaceReader(MultipleChoiceReader):
    """Passages with questions and lettered options (Lai et al. 2017).

    A folder has one JSON file per passage (``.txt``); JSON lines have one question per line.
    """

    kind: Literal["race"] = "race"

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[MultipleChoice]:
        if path.is_dir():
            for file in sorted(path.rglob("*.txt")):
                record = parse_json_object(str(file), read_all_text(file))
                yield from self._article_examples(str(file), record, with_labels)
            return
        for location, line in read_located_lines(path):
            if line.strip():
                record = parse_json_object(location, line)
                yield from self._article_examples(location, record, with_labels)

    def _article_examples(
        self, location: str, record: dict[str, Any], with_labels: bool
    ) -> Iterator[MultipleChoice]:
        article = require_key(location, record, "article")
        if "questions" not in record:
            record = {
                "questions": [require_key(location, record, "question")],
                "options": [require_key(location, record, "options", list)],
                "answers": [record.get("answer", "")],
            }
        questions = require_key(location, record, "questions", list)
        options = require_key(location, record, "options", list)
        answers = (
            require_key(location, record, "answers", list)
            if with_labels
            else [None] * len(questions)
        )
        if not len(questions) == len(options) == len(answers):
            raise UserError(
                f"{location}: {count_noun(len(questions), 'question')}, "
                f"{count_noun(len(options), 'list')} of options, "
                f"{count_noun(len(answers), 'answer')}: each question needs one of both"
            )
        for question, values, answer in zip(questions, options, answers, strict=True):
            if not is_text(question):
                raise UserError(f"{location}: a question is {question!r}: write its text")
            texts = parse_options(location, values)
            label = None if answer is None else _letter_index(location, answer, len(texts))
            yield MultipleChoice(article.strip(), texts, str(question).strip(), label, location)


class SwagReader(MultipleChoiceReader):
    """CSV with the columns sent1, sent2, ending0 to ending3 and label (Zellers et al. 2018)."""

    kind: Literal["swag"] = "swag"

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[MultipleChoice]:
        endings = [f"ending{number}" for number in range(4)]
        columns = ["sent1", "sent2", *endings, *(["label"] if with_labels else [])]
        for location, row in read_table(path, None, columns):
            label = _parse_index(location, row["label"], len(endings)) if with_labels else None
            options = tuple(str(row[ending]).strip() for ending in endings)
            yield MultipleChoice(
                str(row["sent1"]).strip(), options, str(row["sent2"]).strip(), label, location
            )


class CodahReader(MultipleChoiceReader):
    """TSV without a header: category, start, four endings, label (Chen et al. 2019)."""

    kind: Literal["codah"] = "codah"

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[MultipleChoice]:
        header = ("category", "beginning", "0", "1", "2", "3", "right")
        for location, row in read_table(path, header, list(header)):
            label = _parse_index(location, row["right"], 4) if with_labels else None
            start, *options = (
                parse_text(location, row, column, allow_empty=False)
                for column in ("beginning", "0", "1", "2", "3")
            )
            yield MultipleChoice(start, tuple(options), label=label, location=location)


class DreamReader(MultipleChoiceReader):
    """A JSON list of ``[turns, [{question, choice, answer}], name]`` (Sun et al. 2019)."""

    kind: Literal["dream"] = "dream"

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[MultipleChoice]:
        dialogues = read_json(path)
        if not isinstance(dialogues, list):
            raise UserError(f"{path} is not a list of dialogues")
        for number, dialogue in enumerate(dialogues, start=1):
            location = f"{path}, dialogue {number}"
            parts = dialogue[:2] if isinstance(dialogue, list) else []
            if len(parts) < 2 or not all(isinstance(part, list) for part in parts):
                raise UserError(f"{location} is not a list of turns and questions, a list each")
            turns = " ".join(map(str, parts[0]))
            for item in parts[1]:
                options = parse_options(location, require_key(location, item, "choice", list))
                label = None
                if with_labels:
                    answer = require_key(location, item, "answer")
                    if answer not in options:
                        raise UserError(f"{location}: the answer {answer!r} is none of its choices")
                    label = options.index(answer)
                yield MultipleChoice(
                    turns, options, require_key(location, item, "question"), label, location
                )


def parse_options(location: str, options: Any) -> tuple[str, ...]:
    """Return the options of a question."""
    if not isinstance(options, list) or not options:
        raise UserError(f"{location}: the options of a question are not a list, or it is empty")
    values: list[Any] = options
    if invalid := [option for option in values if not is_text(option)]:
        raise UserError(f"{location}: an option is {invalid[0]!r}: write the text of the option")
    return tuple(map(str, values))


def is_text(value: Any) -> bool:
    """Return whether a value is a text, or a number, which is converted to digits."""
    is_text_or_number = isinstance(value, str | int | float) and not isinstance(value, bool)
    return is_text_or_number and value == value


def _letter_index(location: str, letter: Any, num_options: int) -> int:
    """Return the index of an option, given its letter."""
    index = (
        string.ascii_uppercase.find(letter) if isinstance(letter, str) and len(letter) == 1 else -1
    )
    if not 0 <= index < num_options:
        raise UserError(f"{location}: the answer {letter!r} names none of {num_options} options")
    return index


def _parse_index(location: str, label: Any, num_options: int) -> int:
    """Return the index of an option, given its number."""
    text = str(label).strip()
    if not text.isdecimal() or int(text) >= num_options:
        raise UserError(
            f"{location}: the label {label!r} names none of the options 0 to {num_options - 1}"
        )
    return int(text)
