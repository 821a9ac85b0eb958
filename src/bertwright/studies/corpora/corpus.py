"""The axis of corpora: a text, and what can be asked of a model that has read it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertwright.axes import Choice
from bertwright.text.preparation import prepare
from bertwright.text.sample import gather_sample
from bertwright.text.sources import find_sources
from bertwright.text.tokenizers import TokenizerChoice
from bertwright.text.vocabularies import train_on_files


@dataclass(frozen=True)
class Written:
    """Where a corpus lies: its text, its minimal pairs, its questions and its tasks, as far as it
    has any.

    A task is a folder with a training and a development file.
    """

    folder: Path

    @property
    def text(self) -> Path:
        """A folder of text."""
        return self.folder / "text"

    @property
    def pairs(self) -> Path:
        """Minimal pairs as JSON lines."""
        return self.folder / "pairs.jsonl"

    @property
    def questions(self) -> Path:
        """What is to be continued as JSON lines: a ``prompt``, its ``answer``, of what ``kind``."""
        return self.folder / "questions.jsonl"

    @property
    def tasks(self) -> Path:
        """A folder of tasks."""
        return self.folder / "tasks"

    def task(self, name: str) -> Path:
        """The folder of a task."""
        return self.tasks / name


def write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines."""
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(f"{json.dumps(row)}\n" for row in rows)


class Corpus(Choice):
    """The axis: where the text of a study comes from."""

    def stated(self) -> dict[str, Any]:
        """What decides its text, as plain data."""
        return self.model_dump(mode="json")

    def write(self, to: Written) -> None:
        """Write the corpus; the same choice writes the same bytes."""
        raise TypeError(f"{type(self).__name__} is an axis, not a corpus")

    def inputs(self, written: Written) -> list[str | Path]:
        """What is prepared."""
        return [written.text]

    def prepare(
        self, written: Written, tokenizer: TokenizerChoice, vocabulary: Path, data: Path
    ) -> None:
        """Make a data set of what was written, and its vocabulary where there is none yet."""
        inputs = self.inputs(written)
        if not vocabulary.is_dir():
            train_on_files(inputs, vocabulary, tokenizer)
        prepare(inputs, data, vocabulary)


class Sample(Corpus):
    """The documentation that is installed with Python and the packages of the project."""

    kind: Literal["sample"] = "sample"

    def write(self, to: Written) -> None:
        gather_sample(to.text)


class Files(Corpus):
    """Text of one's own: ``paths`` as ``prepare`` takes them."""

    kind: Literal["files"] = "files"
    paths: tuple[str, ...]

    def stated(self) -> dict[str, Any]:
        sources = find_sources(self.paths)
        names = [Path(n) for s in sources for n in (s.name, s.beside) if n is not None]
        seen = [(str(n.resolve()), n.stat().st_size, n.stat().st_mtime_ns) for n in names]
        return {**super().stated(), "files": seen}

    def write(self, to: Written) -> None:
        to.folder.mkdir(parents=True, exist_ok=True)

    def inputs(self, written: Written) -> list[str | Path]:
        return [*self.paths]
