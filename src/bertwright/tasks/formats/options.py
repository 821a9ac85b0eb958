"""Files of texts that are gone on with in one of several ways: RACE, SWAG, CODAH, DREAM."""

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Options
from bertwright.tasks.formats.lines import json_object, read_lines, whole_text
from bertwright.tasks.formats.questions import json_of, value_of
from bertwright.tasks.formats.reader import Reader
from bertwright.tasks.formats.tables import rows_of


class OptionReader(Reader):
    """What the readers of options share."""

    def read(self, path: Path, labelled: bool = True) -> list[Options]:
        found = list(self._read(path, labelled))
        if not found:
            raise UserError(f"{path} holds no questions")
        return found

    def _read(self, path: Path, labelled: bool) -> Iterator[Options]:
        raise TypeError(f"{type(self).__name__} reads no options")


class RaceReader(OptionReader):
    """A passage with questions and lettered options in a JSON file each (a folder of ``.txt``), or
    one question on each line of JSON lines (Lai et al. 2017)."""

    kind: Literal["race"] = "race"

    def _read(self, path: Path, labelled: bool) -> Iterator[Options]:
        if path.is_dir():
            for file in sorted(path.rglob("*.txt")):
                row = json_object(str(file), whole_text(file))
                yield from self._passage(str(file), row, labelled)
            return
        for number, line in read_lines(path):
            if line.strip():
                where = f"{path} line {number}"
                yield from self._passage(where, json_object(where, line), labelled)

    def _passage(self, where: str, row: dict[str, Any], labelled: bool) -> Iterator[Options]:
        article = value_of(where, row, "article", str)
        if "questions" not in row:
            row = {
                "questions": [value_of(where, row, "question", str)],
                "options": [value_of(where, row, "options", list)],
                "answers": [row.get("answer", "")],
            }
        questions = value_of(where, row, "questions", list)
        options = value_of(where, row, "options", list)
        answers = value_of(where, row, "answers", list) if labelled else [None] * len(questions)
        if not len(questions) == len(options) == len(answers):
            raise UserError(
                f"{where}: {len(questions)} questions, {len(options)} lists of options, "
                f"{len(answers)} answers: each question has one of both"
            )
        for question, listed, answer in zip(questions, options, answers, strict=True):
            if not _is_text(question):
                raise UserError(f"{where}: a question is {question!r}: write its text")
            ways = _ways(where, listed)
            label = None if answer is None else _letter(where, answer, len(ways))
            yield Options(article.strip(), ways, str(question).strip(), label, where)


class SwagReader(OptionReader):
    """CSV with the columns sent1, sent2, ending0 to ending3 and label (Zellers et al. 2018)."""

    kind: Literal["swag"] = "swag"

    def _read(self, path: Path, labelled: bool) -> Iterator[Options]:
        endings = [f"ending{number}" for number in range(4)]
        wanted = ["sent1", "sent2", *endings, *(["label"] if labelled else [])]
        for where, row in rows_of(path, None, wanted):
            label = _index(where, row["label"], len(endings)) if labelled else None
            ways = tuple(str(row[ending]).strip() for ending in endings)
            yield Options(str(row["sent1"]).strip(), ways, str(row["sent2"]).strip(), label, where)


class CodahReader(OptionReader):
    """TSV without names: a category, a beginning, four endings, and the index of the right one
    (Chen et al. 2019)."""

    kind: Literal["codah"] = "codah"

    def _read(self, path: Path, labelled: bool) -> Iterator[Options]:
        header = ("category", "beginning", "0", "1", "2", "3", "right")
        for where, row in rows_of(path, header, list(header)):
            label = _index(where, row["right"], 4) if labelled else None
            ways = tuple(row[str(number)].strip() for number in range(4))
            yield Options(row["beginning"].strip(), ways, label=label, where=where)


class DreamReader(OptionReader):
    """A JSON list of dialogues, each ``[turns, [{question, choice, answer}], name]`` (Sun et al.
    2019)."""

    kind: Literal["dream"] = "dream"

    def _read(self, path: Path, labelled: bool) -> Iterator[Options]:
        dialogues = json_of(path)
        if not isinstance(dialogues, list):
            raise UserError(f"{path} is no list of dialogues")
        for number, dialogue in enumerate(dialogues, start=1):
            where = f"{path}, dialogue {number}"
            parts = dialogue[:2] if isinstance(dialogue, list) else []
            if len(parts) < 2 or not all(isinstance(part, list) for part in parts):
                raise UserError(f"{where} is no list of turns and questions, a list each")
            turns = " ".join(map(str, parts[0]))
            for asked in parts[1]:
                ways = _ways(where, value_of(where, asked, "choice", list))
                label = None
                if labelled:
                    answer = value_of(where, asked, "answer", str)
                    if answer not in ways:
                        raise UserError(f"{where}: the answer {answer!r} is none of its choices")
                    label = ways.index(answer)
                yield Options(turns, ways, value_of(where, asked, "question", str), label, where)


def _ways(where: str, options: Any) -> tuple[str, ...]:
    """The options of a question."""
    if not isinstance(options, list) or not options:
        raise UserError(f"{where}: the options of a question are no list, or it is empty")
    listed: list[Any] = options
    if wrong := [option for option in listed if not _is_text(option)]:
        raise UserError(f"{where}: an option is {wrong[0]!r}: write the text of the option")
    return tuple(map(str, listed))


def _is_text(value: Any) -> bool:
    """Return whether a value can be read as a text: a number is as it is written."""
    return isinstance(value, str | int | float) and value == value


def _letter(where: str, said: Any, count: int) -> int:
    """The option that a letter names."""
    number = string.ascii_uppercase.find(said) if isinstance(said, str) and len(said) == 1 else -1
    if not 0 <= number < count:
        raise UserError(f"{where}: the answer {said!r} names none of {count} options")
    return number


def _index(where: str, said: Any, count: int) -> int:
    """The option that a number names."""
    text = str(said).strip()
    if not text.isdecimal() or int(text) >= count:
        raise UserError(f"{where}: the label {said!r} names none of the options 0 to {count - 1}")
    return int(text)
