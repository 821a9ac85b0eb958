"""Writing a data folder, array by array, in constant memory."""

import contextlib
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.piece_cache import Encoded
from bertwright.text.shards import (
    MANIFEST,
    PIECE_COUNTS,
    RANK_EVERY,
    SCHEMA_VERSION,
    Counts,
    File,
    Manifest,
    TokenizerIdentity,
    shard_name,
)
from bertwright.text.tokenizers import FILE as TOKENIZER_FILE
from bertwright.text.tokenizers import Tokenizer


class SplitWriter:
    """Appends encoded documents to the files of one split."""

    def __init__(self, folder: Path, name: str, piece_type: str) -> None:
        self._pieces = _ArrayFile(folder / shard_name(name, "pieces"), piece_type)
        self._marks = _ArrayFile(folder / shard_name(name, "marks"), "uint8")
        self._word_bytes = _ArrayFile(folder / shard_name(name, "word_bytes"), "uint16")
        self._words_before = _ArrayFile(folder / shard_name(name, "words_before"), "int64")
        self._documents = _ArrayFile(folder / shard_name(name, "documents"), "int64")
        self._sentences = _ArrayFile(folder / shard_name(name, "sentences"), "int64")

    def append(self, encoded: Encoded) -> None:
        """Add documents after those that are there."""
        position = self._pieces.length
        marks = encoded.marks
        words = np.cumsum(marks & WORD_START, dtype=np.int64)
        ranked = np.arange(-position % RANK_EVERY, len(marks), RANK_EVERY)
        before = words[ranked] - (marks[ranked] & WORD_START)
        self._words_before.append(self._word_bytes.length + before)
        self._pieces.append(encoded.pieces)
        self._marks.append(marks)
        self._word_bytes.append(encoded.word_bytes)
        self._documents.append(position + np.flatnonzero(marks & DOCUMENT_START))
        self._sentences.append(position + np.flatnonzero(marks & SENTENCE_START))

    def finish(self) -> tuple[Counts, dict[str, File]]:
        """Close the files; what they hold, and what they are."""
        counts = Counts(
            pieces=self._pieces.length,
            documents=self._documents.length,
            sentences=self._sentences.length,
            words=self._word_bytes.length,
        )
        end = np.array([self._pieces.length])
        self._documents.append(end)
        self._sentences.append(end)
        return counts, {file.name: file.close() for file in self._files()}

    def abandon(self) -> None:
        """Close the files without caring what reached the disk."""
        for file in self._files():
            file.abandon()

    def _files(self) -> "list[_ArrayFile]":
        return [
            self._pieces,
            self._marks,
            self._word_bytes,
            self._words_before,
            self._documents,
            self._sentences,
        ]


class _ArrayFile:
    """One growing array in one file, with its checksum."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.name = path.name
        self.length = 0
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._digest = sha256()
        self._file = path.open("wb")

    def append(self, values: NDArray[Any]) -> None:
        data = np.ascontiguousarray(values, dtype=self._dtype).tobytes()
        self._file.write(data)
        self._digest.update(data)
        self.length += len(values)

    def close(self) -> File:
        self._file.close()
        return File(bytes=self.length * self._dtype.itemsize, sha256=self._digest.hexdigest())

    def abandon(self) -> None:
        """Close without caring what reached the disk."""
        with contextlib.suppress(OSError):
            self._file.close()


def piece_type(tokenizer: Tokenizer) -> str:
    """The smallest type that holds every piece."""
    return "uint16" if tokenizer.size <= 1 << 16 else "uint32"


def write_manifest(
    folder: Path,
    tokenizer: Tokenizer,
    piece_counts: NDArray[np.int64],
    splits: dict[str, tuple[Counts, dict[str, File]]],
    sources: list[dict[str, str | int]],
) -> Manifest:
    """Write what stands beside the shards, the manifest last."""
    tokenizer.save(folder)
    np.save(folder / PIECE_COUNTS, piece_counts)
    files = {name: file for _, written in splits.values() for name, file in written.items()}
    for name in (PIECE_COUNTS, TOKENIZER_FILE):
        content = (folder / name).read_bytes()
        files[name] = File(bytes=len(content), sha256=sha256(content).hexdigest())
    identity = TokenizerIdentity(kind=tokenizer.kind, size=tokenizer.size, hash=tokenizer.hash)
    manifest = Manifest(
        hash=_content_hash(identity, files),
        tokenizer=identity,
        piece_type="uint16" if piece_type(tokenizer) == "uint16" else "uint32",
        splits={name: counts for name, (counts, _) in splits.items()},
        files=files,
        sources=sources,
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    return manifest


def _content_hash(tokenizer: TokenizerIdentity, files: dict[str, File]) -> str:
    shards = {name: file.sha256 for name, file in files.items() if name != TOKENIZER_FILE}
    deciding = {"schema": SCHEMA_VERSION, "tokenizer": tokenizer.hash, "shards": shards}
    return sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()
