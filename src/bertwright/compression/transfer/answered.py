"""Texts with the answers of a teacher in files, of which a part is in memory: ever more of them,
until all are there."""

import json
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.compression.transfer.texts import example_of, line_of
from bertwright.files import full_disk_named, json_value
from bertwright.tasks.answers import Floats
from bertwright.tasks.distant import Distant, DistantPart, OnDemand
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import AnyExample

TEXTS, OUTPUTS, INDEX, CHUNKS = "texts.jsonl", "outputs.bin", "index.bin", "chunks.jsonl"


class AnsweredTexts(Distant):
    """What :class:`Answers` has written, read text by text.

    ``texts.jsonl`` has a line for each text with its label; ``outputs.bin`` what the head of the
    teacher says, float32; ``index.bin`` where in both files each text ends.
    """

    def __init__(self, folder: Path, teacher: FineTuned) -> None:
        self.teacher = teacher
        # The name of the folder says of whom texts were asked, chunks which they are.
        self.sum = sha256(folder.name.encode() + (folder / CHUNKS).read_bytes()).hexdigest()
        with open(folder / TEXTS, "rb") as opened:
            self._texts = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self._index = np.memmap(folder / INDEX, np.int64, "r").reshape(-1, 2)
        width = teacher.net.plan.num_outputs
        self._outputs = np.memmap(folder / OUTPUTS, np.float32, "r").reshape(-1, width)

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, index: int) -> AnyExample: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyExample]: ...
    def __getitem__(self, index: int | slice) -> AnyExample | list[AnyExample]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        number = range(len(self))[index]
        start, stop = (int(end) for end, _ in self._bounds(number))
        return example_of(self._texts[start:stop].decode("utf-8"))

    def __iter__(self) -> Iterator[AnyExample]:
        return map(self.__getitem__, range(len(self)))

    def outputs(self, number: int) -> Floats:
        """(k, K) of one text, over all rows that the teacher cuts it into."""
        start, stop = (int(end) for _, end in self._bounds(number))
        return np.array(self._outputs[start:stop])

    def num_outputs(self) -> NDArray[np.int64]:
        """How many each text has, (N,)."""
        return np.diff(self._index[:, 1], prepend=0)

    def taught(self, part: DistantPart) -> Sequence[Tensor]:
        """What is said of each row of a part that is made of these texts, as a head in training
        says it: (k, K) float32."""

        def of_row(number: int) -> Tensor:
            row, first = part.rows[number], int(part.rows.first_answers[number])
            stop = first + part.answering.num_answers(row)
            outputs = torch.from_numpy(self.outputs(row.example)[first:stop])
            return part.answering.as_trained(outputs)

        return OnDemand(len(part.rows), of_row)

    def _bounds(self, number: int) -> NDArray[np.int64]:
        """Where it begins and ends, (2, 2): in bytes of its line, and in outputs."""
        before = self._index[number - 1] if number else np.zeros(2, np.int64)
        return np.stack([before, self._index[number]])


@dataclass(frozen=True)
class Chunk:
    """Some texts that were answered: what they were made of, by its ``key``, and where the files
    end behind them."""

    key: str
    bytes: int
    texts: int
    outputs: int


class Answers:
    """The files while they grow, chunk by chunk. A run that was stopped goes on behind the last
    whole one; from the first on that is made of something else, what was there goes."""

    def __init__(self, folder: Path, width: int) -> None:
        self._folder, self._width = folder, width
        self._chunks = _whole_chunks(folder / CHUNKS)
        self._done, self._is_cut = 0, False
        while self._chunks and not self._are_there(self._chunks[-1]):
            self._chunks.pop()

    def has(self, key: str) -> bool:
        """Whether the next chunk is there already; then the one behind it is the next."""
        if self._done < len(self._chunks) and self._chunks[self._done].key == key:
            self._done += 1
            return True
        return False

    @property
    def num_texts(self) -> int:
        """Of the chunks that were met or added."""
        return self._chunks[self._done - 1].texts if self._done else 0

    def last(self) -> Iterator[AnyExample]:
        """The texts of the chunk that was met last."""
        start = self._chunks[self._done - 2].bytes if self._done > 1 else 0
        with open(self._folder / TEXTS, "rb") as opened:
            opened.seek(start)
            lines = opened.read(self._chunks[self._done - 1].bytes - start)
        return map(example_of, lines.decode("utf-8").split("\n")[:-1])

    def add(self, key: str, examples: Sequence[AnyExample], outputs: Sequence[Floats]) -> None:
        """Write the next chunk: texts, and the outputs (k, K) of each."""
        if not self._is_cut:
            self.cut()
        end = self._end
        lines = [f"{line_of(example)}\n".encode() for example in examples]
        index = np.cumsum([(len(a), len(b)) for a, b in zip(lines, outputs, strict=True)], 0)
        index += (end.bytes, end.outputs)
        written = {
            TEXTS: b"".join(lines),
            OUTPUTS: np.concatenate(outputs).astype(np.float32).tobytes(),
            INDEX: index.astype(np.int64).tobytes(),
        }
        for name, content in written.items():
            _append(self._folder / name, content)
        size, number = (int(value) for value in index[-1])
        chunk = Chunk(key, size, end.texts + len(lines), number)
        _append(self._folder / CHUNKS, f"{json.dumps(asdict(chunk))}\n".encode())
        self._chunks.append(chunk)
        self._done += 1

    def cut(self) -> None:
        """Leave nothing behind the chunks that were met or added."""
        del self._chunks[self._done :]
        chunks = "".join(f"{json.dumps(asdict(chunk))}\n" for chunk in self._chunks)
        # First, so that it never names what is not there.
        sizes = {CHUNKS: len(chunks.encode()), **self._sizes(self._end)}
        for name, size in sizes.items():
            if (file := self._folder / name).exists():
                os.truncate(file, size)
        self._is_cut = True

    def _sizes(self, end: Chunk) -> dict[str, int]:
        """Of the files behind a chunk, in bytes."""
        return {
            TEXTS: end.bytes,
            OUTPUTS: 4 * self._width * end.outputs,
            INDEX: 16 * end.texts,
        }

    def _are_there(self, chunk: Chunk) -> bool:
        """Whether the files reach as far as a chunk says."""
        files = ((self._folder / name, size) for name, size in self._sizes(chunk).items())
        return all(file.exists() and file.stat().st_size >= size for file, size in files)

    @property
    def _end(self) -> Chunk:
        return self._chunks[-1] if self._chunks else Chunk("", 0, 0, 0)


def _append(file: Path, content: bytes) -> None:
    with full_disk_named(file), open(file, "ab") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _whole_chunks(file: Path) -> list[Chunk]:
    """Those of a file; what a kill has cut short is none."""
    if not file.is_file():
        return []
    found: list[Chunk] = []
    for line in file.read_bytes().split(b"\n")[:-1]:
        try:
            found.append(Chunk(**json_value(line.decode())))
        except (ValueError, TypeError):
            break
    return found
