"""Whether a word means the same in two sentences: the files of WiC, ``train.data.txt`` beside
``train.gold.txt``."""

from pathlib import Path
from typing import ClassVar, Literal

from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.lines import read_lines, suffix_of
from bertwright.tasks.formats.reader import Reader


class WordInContextReader(Reader):
    """TSV without names: the word, its part of speech, where it stands, two sentences.

    The first text is the word with the first sentence, so that it is known what is asked.
    """

    kind: Literal["word-in-context"] = "word-in-context"
    file_word: ClassVar[str] = "data"

    @property
    def pairs(self) -> bool:
        return True

    def claims(self, path: Path) -> bool:
        return f".{self.file_word}." in path.name and suffix_of(path) == ".txt"

    def read(self, path: Path, labelled: bool = True) -> list[Example]:
        """Errors: UserError, naming file and line, for a row of another width, and where the file
        with the labels is missing or of another length."""
        gold = path.with_name(path.name.replace(".data.", ".gold."))
        labels = [line.strip() for _, line in read_lines(gold)] if labelled else []
        examples: list[Example] = []
        for number, line in read_lines(path):
            where, fields = f"{path} line {number}", line.split("\t")
            if len(fields) != 5:
                raise UserError(f"{where} has {len(fields)} columns instead of 5: mend it")
            label = labels[number - 1] if number <= len(labels) else None
            first, second = f"{fields[0]}: {fields[3].strip()}", fields[4].strip()
            examples.append(Example(first, second, label, where=where))
        if labelled and len(labels) != len(examples):
            raise UserError(f"{gold} has {len(labels)} labels for {len(examples)} lines of {path}")
        return examples
