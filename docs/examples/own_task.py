"""A task of one's own: every line is a class, a colon and a text.

bertwright finetune encoder --plugin own_task.py --task labelled-lines --train lines.txt -o out
"""

from pathlib import Path
from typing import Literal

from bertwright import Example, Task, UserError
from bertwright.tasks.answers import ClassAnswer
from bertwright.tasks.catalogue import add_task
from bertwright.tasks.formats.lines import read_lines
from bertwright.tasks.formats.reader import Reader


class LabelledLines(Reader):
    kind: Literal["labelled-lines"] = "labelled-lines"

    def read(self, path: Path, labelled: bool = True) -> list[Example]:
        examples: list[Example] = []
        for number, line in read_lines(path):
            label, colon, text = line.partition(":")
            if not colon:
                raise UserError(f"{path} line {number}: no colon: write the class, then a colon")
            where = f"{path} line {number}"
            examples.append(Example(text.strip(), label=label if labelled else None, where=where))
        return examples


add_task(Task("labelled-lines", ClassAnswer(), LabelledLines(), ("macro-f1", "accuracy")))
