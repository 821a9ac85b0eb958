"""Whether a word means the same in two sentences: the files of WiC, ``train.data.txt`` beside
``train.gold.txt``."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.lines import Line, located_lines, read_lines
from bertwright.tasks.formats.reader import Reader

_PLACES = re.compile(r"\d+-\d+")


class WordInContextReader(Reader):
    """TSV without names: the word, its part of speech, where it stands, two sentences.

    The first text is the word with the first sentence, so that it is known what is asked.
    """

    kind: Literal["word-in-context"] = "word-in-context"
    file_word: ClassVar[str] = "data"

    @property
    def pairs(self) -> bool:
        return True

    def claims(self, lines: Sequence[Line], labels: Sequence[str]) -> bool:
        rows = [line.split("\t") for _, line in lines if line.strip()]
        return bool(rows) and all(len(row) > 2 and _PLACES.fullmatch(row[2]) for row in rows)

    def parse(self, name: str, lines: Iterable[Line]) -> list[Example]:
        return [_example(where, line, None) for where, line in lines]

    def read(self, path: Path, labelled: bool = True) -> list[Example]:
        """Errors: UserError, naming file and line, for a row of another width, and where the file
        with the labels is missing or of another length."""
        gold = path.with_name(path.name.replace(".data.", ".gold."))
        labels = [line.strip() for _, line in read_lines(gold)] if labelled else []
        examples = [
            _example(where, line, labels[number] if number < len(labels) else None)
            for number, (where, line) in enumerate(located_lines(path))
        ]
        if labelled and len(labels) != len(examples):
            raise UserError(f"{gold} has {len(labels)} labels for {len(examples)} lines of {path}")
        if not examples:
            raise UserError(f"{path} holds no examples")
        return examples


def _example(where: str, line: str, label: str | None) -> Example:
    fields = line.split("\t")
    if len(fields) != 5:
        raise UserError(f"{where} has {len(fields)} columns instead of 5: mend it")
    return Example(f"{fields[0]}: {fields[3].strip()}", fields[4].strip(), label, where=where)
