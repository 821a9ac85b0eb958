"""The axis of corpora: a text, with prompts, minimal pairs and tasks for evaluation."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertwright.core.config import Config
from bertwright.core.object_storage import storage_url, storage_version
from bertwright.data.hub.reference import HubDataset
from bertwright.data.hub.rows import find_commit
from bertwright.data.preparation import prepare
from bertwright.data.readers.sources import find_sources
from bertwright.data.sample_text.sample import write_sample_text
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer_on_files


@dataclass(frozen=True)
class CorpusFolder:
    """The folder of a corpus: its text and, if present, its minimal pairs, prompts and tasks.

    A task is a folder with a training and a development file.
    """

    folder: Path

    @property
    def text(self) -> Path:
        """The folder with the text."""
        return self.folder / "text"

    @property
    def minimal_pairs(self) -> Path:
        """The file of minimal pairs, as JSON lines."""
        return self.folder / "pairs.jsonl"

    @property
    def prompts(self) -> Path:
        """JSON lines with ``prompt``, ``continuation``, ``kind``, and optionally ``gap``."""
        return self.folder / "prompts.jsonl"

    @property
    def tasks(self) -> Path:
        """The folder with all tasks."""
        return self.folder / "tasks"

    def task(self, name: str) -> Path:
        """Return the folder of a task."""
        return self.tasks / name


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(record)}\n" for record in records)


class Corpus(Config):
    """The axis of corpora: the source of the text of a study."""

    def identity(self) -> dict[str, Any]:
        """Return plain data that identifies the text."""
        return self.model_dump(mode="json")

    def write(self, corpus_folder: CorpusFolder) -> None:
        """Write the corpus; the same settings always write the same bytes."""
        raise TypeError(f"{type(self).__name__} is an axis, not a corpus")

    def inputs(self, corpus_folder: CorpusFolder) -> list[str | Path]:
        """Return the input paths for ``prepare``."""
        return [corpus_folder.text]

    def prepare(
        self,
        corpus_folder: CorpusFolder,
        tokenizer: TokenizerConfig,
        tokenizer_folder: Path,
        data: Path,
    ) -> None:
        """Create the data set, and its tokenizer if it does not exist yet."""
        inputs = self.inputs(corpus_folder)
        if not tokenizer_folder.is_dir():
            train_tokenizer_on_files(inputs, tokenizer_folder, tokenizer)
        prepare(inputs, data, tokenizer_folder)


class SampleCorpus(Corpus):
    """The documentation installed with Python and its packages."""

    kind: Literal["sample"] = "sample"

    def write(self, corpus_folder: CorpusFolder) -> None:
        write_sample_text(corpus_folder.text)


class FileCorpus(Corpus):
    """Text files and data sets; ``paths`` are as in ``prepare``."""

    kind: Literal["files"] = "files"
    paths: tuple[str, ...]

    def identity(self) -> dict[str, Any]:
        sources = find_sources(self.paths)
        names = [n for s in sources for n in (s.name, s.translation_path) if n is not None]
        return {**super().identity(), "files": [_version(name) for name in names]}

    def write(self, corpus_folder: CorpusFolder) -> None:
        corpus_folder.folder.mkdir(parents=True, exist_ok=True)

    def inputs(self, corpus_folder: CorpusFolder) -> list[str | Path]:
        return [*self.paths]


def _version(name: str) -> tuple[str | int, ...]:
    """Return what identifies the content of a file, an object or a data set on the Hub."""
    if HubDataset.is_named(name):
        return name, find_commit(HubDataset.parse(name))
    if (url := storage_url(name)) is not None:
        return url, storage_version(url)
    status = Path(name).stat()
    return str(Path(name).resolve()), status.st_size, status.st_mtime_ns
