"""Texts of a segment on disk: JSON lines, and where each begins."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np

from bertwright.core.files import loads_json
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.data.tokenization.characters import replace_lone_surrogates
from bertwright.retrieval.manifest import damaged_index_error

TEXTS_FILE, OFFSETS_FILE = "texts.jsonl", "offsets.npy"


class TextSegment:
    """The texts of a segment, read from a memory-mapped file; UserError for a damaged one."""

    def __init__(self, folder: Path) -> None:
        self._offsets = np.load(folder / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)
        self._file = folder / TEXTS_FILE
        with open(self._file, "rb") as stream:
            self._lines = mmap(stream.fileno(), 0, access=ACCESS_READ)

    @staticmethod
    def write(folder: Path, texts: Iterable[IdentifiedText], max_texts: int) -> int:
        """Write at most ``max_texts`` of the texts, and return how many there were."""
        offsets = [0]
        with open(folder / TEXTS_FILE, "wb") as stream:
            for text in islice(texts, max_texts):
                content = {"id": text.id, "title": text.title, "text": text.text}
                content = {name: value for name, value in content.items() if value is not None}
                line = replace_lone_surrogates(json.dumps(content, ensure_ascii=False) + "\n")
                offsets.append(offsets[-1] + stream.write(line.encode()))
        np.save(folder / OFFSETS_FILE, np.array(offsets, np.int64))
        return len(offsets) - 1

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, position: int) -> IdentifiedText:
        start, stop = self._offsets[position : position + 2].tolist()
        try:
            return IdentifiedText(**loads_json(self._lines[start:stop].decode()))
        except (ValueError, TypeError) as error:
            raise damaged_index_error(self._file, str(error)) from None

    def __iter__(self) -> Iterator[IdentifiedText]:
        return (self[position] for position in range(len(self)))
