"""Texts with a teacher's outputs, in memory-mapped files that are written chunk by chunk."""

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

from bertwright.compression.distillation.transfer.examples import from_json_line, to_json_line
from bertwright.core.files import explain_full_disk, read_json_lines
from bertwright.tasks.data.lazy_examples import LazyEncodedTask, LazyExamples, LazyList
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import TaskExample
from bertwright.tasks.outputs import FloatArray

TEXTS, OUTPUTS, INDEX, CHUNKS = "texts.jsonl", "outputs.bin", "index.bin", "chunks.jsonl"


class TransferDataset(LazyExamples):
    """The files of a :class:`TransferWriter`, read one text at a time.

    ``texts.jsonl`` has a line for each text with its label, ``outputs.bin`` the float32 outputs of
    the teacher's head, ``index.bin`` the end of each text in both files.
    """

    def __init__(self, folder: Path, teacher: FineTunedModel) -> None:
        self.teacher = teacher
        # The folder name identifies the teacher; the chunks identify the texts.
        self.sha256 = sha256(folder.name.encode() + (folder / CHUNKS).read_bytes()).hexdigest()
        with open(folder / TEXTS, "rb") as file:
            self._texts = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._index = np.memmap(folder / INDEX, np.int64, "r").reshape(-1, 2)
        width = teacher.task_model.head_spec.num_outputs
        self._outputs = np.memmap(folder / OUTPUTS, np.float32, "r").reshape(-1, width)

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, index: int) -> TaskExample: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskExample]: ...
    def __getitem__(self, index: int | slice) -> TaskExample | list[TaskExample]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        index = range(len(self))[index]
        start, stop = (int(end) for end, _ in self._bounds(index))
        return from_json_line(self._texts[start:stop].decode("utf-8"))

    def __iter__(self) -> Iterator[TaskExample]:
        return map(self.__getitem__, range(len(self)))

    def outputs(self, index: int) -> FloatArray:
        """Return the outputs (k, K) of one text for all its sequences."""
        start, stop = (int(end) for _, end in self._bounds(index))
        return np.array(self._outputs[start:stop])

    def num_outputs(self) -> NDArray[np.int64]:
        """Return the number of outputs of each text, (N,)."""
        return np.diff(self._index[:, 1], prepend=0)

    def outputs_of(self, part: LazyEncodedTask) -> Sequence[Tensor]:
        """Return the outputs (k, K) float32 of each sequence of ``part``, on training scale."""

        def sequence_outputs(index: int) -> Tensor:
            sequence, start = part.sequences[index], int(part.sequences.first_outputs[index])
            stop = start + part.output_decoder.output_length(sequence)
            outputs = torch.from_numpy(self.outputs(sequence.example_index)[start:stop])
            return part.output_decoder.to_training_scale(outputs)

        return LazyList(len(part.sequences), sequence_outputs)

    def _bounds(self, index: int) -> NDArray[np.int64]:
        """Return start and end of a text, (2, 2): in bytes of its line, and in outputs."""
        before = self._index[index - 1] if index else np.zeros(2, np.int64)
        return np.stack([before, self._index[index]])


@dataclass(frozen=True)
class TransferChunk:
    """A chunk of texts: the hash of their sources, and the file ends after the chunk."""

    key: str
    text_bytes: int
    num_texts: int
    num_outputs: int


class TransferWriter:
    """A writer of transfer files, chunk by chunk.

    An interrupted run resumes after the last complete chunk. If a chunk has another key than
    before, it and all later chunks are discarded.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self._folder, self._width = folder, width
        self._chunks = [TransferChunk(**chunk) for chunk in read_json_lines(folder / CHUNKS)]
        self._num_done, self._is_truncated = 0, False
        while self._chunks and not self._is_complete(self._chunks[-1]):
            self._chunks.pop()

    def skip_existing(self, key: str) -> bool:
        """Return True and move past the next chunk if it exists already."""
        if self._num_done < len(self._chunks) and self._chunks[self._num_done].key == key:
            self._num_done += 1
            return True
        return False

    @property
    def num_texts(self) -> int:
        """The number of texts in the chunks skipped or written so far."""
        return self._chunks[self._num_done - 1].num_texts if self._num_done else 0

    def last_examples(self) -> Iterator[TaskExample]:
        """Yield the texts of the last skipped chunk."""
        start = self._chunks[self._num_done - 2].text_bytes if self._num_done > 1 else 0
        with open(self._folder / TEXTS, "rb") as file:
            file.seek(start)
            lines = file.read(self._chunks[self._num_done - 1].text_bytes - start)
        return map(from_json_line, lines.decode("utf-8").split("\n")[:-1])

    def append(
        self, key: str, examples: Sequence[TaskExample], outputs: Sequence[FloatArray]
    ) -> None:
        """Write the next chunk: examples, and the outputs (k, K) of each."""
        if not self._is_truncated:
            self.truncate()
        end = self._last_chunk
        lines = [f"{to_json_line(example)}\n".encode() for example in examples]
        index = np.cumsum([(len(a), len(b)) for a, b in zip(lines, outputs, strict=True)], 0)
        index += (end.text_bytes, end.num_outputs)
        contents = {
            TEXTS: b"".join(lines),
            OUTPUTS: np.concatenate(outputs).astype(np.float32).tobytes(),
            INDEX: index.astype(np.int64).tobytes(),
        }
        for name, content in contents.items():
            _append(self._folder / name, content)
        text_bytes, num_outputs = (int(value) for value in index[-1])
        chunk = TransferChunk(key, text_bytes, end.num_texts + len(lines), num_outputs)
        _append(self._folder / CHUNKS, f"{json.dumps(asdict(chunk))}\n".encode())
        self._chunks.append(chunk)
        self._num_done += 1

    def truncate(self) -> None:
        """Discard everything after the chunks skipped or written so far."""
        del self._chunks[self._num_done :]
        chunks = "".join(f"{json.dumps(asdict(chunk))}\n" for chunk in self._chunks)
        # The chunk list is written first, so that it never lists missing data.
        sizes = {CHUNKS: len(chunks.encode()), **self._file_sizes(self._last_chunk)}
        for name, size in sizes.items():
            if (file := self._folder / name).exists():
                os.truncate(file, size)
        self._is_truncated = True

    def _file_sizes(self, chunk: TransferChunk) -> dict[str, int]:
        """Return the sizes of the files after a chunk, in bytes."""
        return {
            TEXTS: chunk.text_bytes,
            OUTPUTS: 4 * self._width * chunk.num_outputs,
            INDEX: 16 * chunk.num_texts,
        }

    def _is_complete(self, chunk: TransferChunk) -> bool:
        """Return True if the files contain the whole chunk."""
        files = ((self._folder / name, size) for name, size in self._file_sizes(chunk).items())
        return all(file.exists() and file.stat().st_size >= size for file, size in files)

    @property
    def _last_chunk(self) -> TransferChunk:
        return self._chunks[-1] if self._chunks else TransferChunk("", 0, 0, 0)


def _append(file: Path, content: bytes) -> None:
    with explain_full_disk(file), open(file, "ab") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
