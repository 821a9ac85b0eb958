"""Texts of a segment on disk: JSON lines, where each begins, and perhaps the chunks of each."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertwright.core.files import loads_json
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.data.tokenization.characters import replace_lone_surrogates
from bertwright.retrieval.manifest import damaged_index_error

TEXTS_FILE, OFFSETS_FILE, CHUNKS_FILE = "texts.jsonl", "offsets.npy", "chunks.npy"


class TextSegment:
    """The texts of a segment, read from a memory-mapped file; UserError for a damaged one.

    If they are split into chunks, its items are the chunks.
    """

    def __init__(self, folder: Path) -> None:
        self._chunks = None
        if (folder / CHUNKS_FILE).is_file():
            self._chunks = np.load(folder / CHUNKS_FILE, mmap_mode="r", allow_pickle=False)
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

    @staticmethod
    def write_chunks(folder: Path, offsets: Iterable[NDArray[np.int64]]) -> int:
        """Write the characters (C, 2) of the chunks of every text; return the number of chunks."""
        rows = [
            np.insert(characters, 0, number, axis=1) for number, characters in enumerate(offsets)
        ]
        chunks = np.concatenate(rows)
        np.save(folder / CHUNKS_FILE, chunks)
        return len(chunks)

    def __len__(self) -> int:
        return len(self._offsets) - 1 if self._chunks is None else len(self._chunks)

    def __getitem__(self, position: int) -> IdentifiedText:
        if self._chunks is None:
            return self._text(position)
        number, start, stop = self._chunks[position].tolist()
        return self._text(number).part(start, stop)

    def whole_text(self, position: int) -> IdentifiedText:
        """Return the text at a position, or the text that the chunk is of."""
        return self._text(position if self._chunks is None else int(self._chunks[position, 0]))

    def whole_texts(self) -> Iterator[IdentifiedText]:
        """Yield the texts, not split into chunks."""
        return map(self._text, range(len(self._offsets) - 1))

    def _text(self, position: int) -> IdentifiedText:
        start, stop = self._offsets[position : position + 2].tolist()
        try:
            return IdentifiedText(**loads_json(self._lines[start:stop].decode()))
        except (ValueError, TypeError) as error:
            raise damaged_index_error(self._file, str(error)) from None

    def __iter__(self) -> Iterator[IdentifiedText]:
        return (self[position] for position in range(len(self)))
