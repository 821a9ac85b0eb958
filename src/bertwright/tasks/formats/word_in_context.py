"""Files of WiC: whether a word has the same meaning in two sentences."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.data.readers.text_lines import LocatedLine, read_lines, read_located_lines
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import Example

_WORD_INDICES = re.compile(r"\d+-\d+")


class WordInContextReader(ExampleReader):
    """TSV without a header: word, part of speech, word indices, two sentences.

    Labels are in ``train.gold.txt`` next to ``train.data.txt``. The first text is the word followed
    by the first sentence, so that the model knows the word.
    """

    kind: Literal["word-in-context"] = "word-in-context"
    file_keyword: ClassVar[str] = "data"

    @property
    def has_pairs(self) -> bool:
        return True

    def matches(self, lines: Sequence[LocatedLine], labels: Sequence[str]) -> bool:
        rows = [line.split("\t") for _, line in lines if line.strip()]
        return bool(rows) and all(len(row) > 2 and _WORD_INDICES.fullmatch(row[2]) for row in rows)

    def parse_lines(self, name: str, lines: Iterable[LocatedLine]) -> list[Example]:
        return [_parse_example(location, line, None) for location, line in lines]

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[Example]:
        """Iterate over the examples of a file.

        Errors: UserError with file and line, for a row of another width, and for a label file that
        is missing or of another length.
        """
        lines = list(read_located_lines(path))
        labels: list[str | None] = [None] * len(lines)
        if with_labels:
            label_file = path.with_name(path.name.replace(".data.", ".gold."))
            labels = [line.strip() for _, line in read_lines(label_file)]
            if len(labels) != len(lines):
                raise UserError(
                    f"{label_file} has {count_noun(len(labels), 'label')} for "
                    f"{count_noun(len(lines), 'line')} of {path}"
                )
        for (location, line), label in zip(lines, labels, strict=True):
            yield _parse_example(location, line, label)


def _parse_example(location: str, line: str, label: str | None) -> Example:
    fields = line.split("\t")
    if len(fields) != 5:
        raise UserError(
            f"{location} has {count_noun(len(fields), 'column')} instead of 5: fix the line"
        )
    return Example(f"{fields[0]}: {fields[3].strip()}", fields[4].strip(), label, location=location)
