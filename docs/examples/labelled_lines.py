"""A task of one's own: every line is a class, a colon and a text.

bertwright finetune encoder --plugin labelled_lines.py --task labelled-lines --train lines.txt
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from bertwright import Example, Task, UserError
from bertwright.data.readers.text_lines import LocatedLine, read_lines
from bertwright.tasks.catalogue import add_task
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.outputs import ClassificationOutput


class LabelledLines(ExampleReader):
    kind: Literal["labelled-lines"] = "labelled-lines"

    def read(self, path: Path, with_labels: bool = True) -> list[Example]:
        lines = ((f"{path} line {number}", line) for number, line in read_lines(path))
        return [parse_line(location, line, with_labels) for location, line in lines]

    # So that predict finds the texts of a labelled file, too: other files have a text per line.
    def matches(self, lines: Sequence[LocatedLine], labels: Sequence[str]) -> bool:
        return all(line.partition(":")[0] in labels for _, line in lines)

    def parse_lines(self, name: str, lines: Iterable[LocatedLine]) -> list[Example]:
        return [parse_line(location, line, with_label=False) for location, line in lines]


def parse_line(location: str, line: str, with_label: bool) -> Example:
    label, colon, text = line.partition(":")
    if not colon:
        raise UserError(f"{location}: no colon: write the class, then a colon")
    return Example(text.strip(), label=label if with_label else None, location=location)


add_task(Task("labelled-lines", ClassificationOutput(), LabelledLines(), ("macro-f1", "accuracy")))
