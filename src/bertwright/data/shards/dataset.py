"""A prepared data set: memory-mapped tokens with word, sentence and document boundaries.

A data folder holds ``manifest.json``, ``report.json``, the tokenizer, ``token_counts.npy`` and, for
each split, one file (*shard*) per array:

- ``tokens``: uint16 if the vocabulary allows, else uint32; without special tokens;
- ``boundaries``: uint8 per token, with the flags WORD_START, SENTENCE_START, DOCUMENT_START;
- ``documents``, ``sentences``: int64, start positions, and the end of the last one;
- ``word_bytes``: uint16, the UTF-8 bytes of each word, in the order of word starts;
- ``words_before``: int64, the number of words that start before each multiple of 1,024 tokens.

If the languages of the documents are known:

- ``languages``: uint16 per document, an index into the manifest's ``languages``;
- ``translations``: int64, the indices of documents that translate the document before them.

With annotations: ``phrase_starts``, ``phrase_stops``, ``entity_starts`` and ``entity_stops``,
int64, token spans [start, stop) in order. With dialogues: ``turn_starts``, int64, and
``turn_speakers``, uint8. With capitals: ``capitals``, int64, the positions of tokens where a
capitalised word starts.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.files import SharedLock, parse_json, read_text
from bertwright.core.object_storage import join_url, read_file, storage_url
from bertwright.data.holdout import TRAIN
from bertwright.data.shards.manifest import (
    MANIFEST,
    TOKEN_COUNTS,
    WORD_RANK_INTERVAL,
    DatasetManifest,
    FileInfo,
    damage_error,
    read_manifest,
    shard_name,
)
from bertwright.data.shards.occurrences import TokenOccurrences
from bertwright.data.shards.remote import REPORT_FILE, local_copy, remote_manifest
from bertwright.data.shards.verification import (
    check_arrays,
    check_manifest,
    check_starts,
    check_tokenizer,
    read_token_counts,
)
from bertwright.data.tokenization.boundaries import WORD_START
from bertwright.data.tokenization.tokenizer import Tokenizer

MAX_BYTES_CHECKED_ON_OPEN = 1 << 30
"""Data sets up to this size are fully checked when opened, larger ones by :meth:`Dataset.check`."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenSpans:
    """A set of token spans [start, stop), in order and without overlap, (S,) each."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def index_at(self, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the index of the span that contains each position; -1 if none does."""
        if not len(self.starts):
            return np.full(positions.shape, -1, np.int32)
        index = np.searchsorted(self.starts, positions, side="right") - 1
        inside = (index >= 0) & (positions < self.stops[np.maximum(index, 0)])
        return np.where(inside, index, -1).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class DialogueTurns:
    """A list of dialogue turns: the first token and the speaker of each, (T,)."""

    starts: NDArray[np.int64]
    speakers: NDArray[np.uint8]


class Split:
    """A memory-mapped, read-only split of a data set."""

    def __init__(self, folder: Path, name: str, manifest: DatasetManifest) -> None:
        counts, arrays = manifest.splits[name], open_arrays(folder, name, manifest)
        self.name = name
        self._folder = folder
        self.num_tokens = counts.tokens
        self.num_documents = counts.documents
        self.num_sentences = counts.sentences
        self._token_ids: NDArray[np.unsignedinteger[Any]] = arrays["tokens"]
        self._boundaries: NDArray[np.uint8] = arrays["boundaries"]
        self._word_bytes: NDArray[np.uint16] = arrays["word_bytes"]
        self._words_before: NDArray[np.int64] = arrays["words_before"]
        self.document_starts: NDArray[np.int64] = arrays["documents"]
        """(num_documents + 1,) token positions; the last is ``num_tokens``."""
        self.sentence_starts: NDArray[np.int64] = arrays["sentences"]
        """(num_sentences + 1,) token positions; the last is ``num_tokens``."""
        self.language_names = manifest.languages
        self.language_ids: NDArray[np.integer[Any]] | None = arrays.get("languages")
        """(num_documents,) indices into ``language_names``; None if unknown."""
        self.translations: NDArray[np.int64] = arrays.get("translations", np.empty(0, np.int64))
        """Indices of documents that translate the document before them."""
        self.phrases, self.entities = (
            TokenSpans(arrays[f"{kind}_starts"], arrays[f"{kind}_stops"])
            if manifest.has_annotations
            else None
            for kind in ("phrase", "entity")
        )
        """Token spans; None if the data set has no annotations."""
        self.turns = (
            DialogueTurns(arrays["turn_starts"], arrays["turn_speakers"])
            if manifest.has_dialogues
            else None
        )
        """Dialogue turns; None if the data set has no dialogues."""
        self.capitals: NDArray[np.int64] | None = arrays.get("capitals")
        """Positions of tokens where a capitalised word starts; None if not stored."""
        self.occurrences: TokenOccurrences | None = None
        """Token counts of documents; None unless set by :meth:`with_occurrences`."""

    def with_language_ids(self, language_names: Sequence[str]) -> Self:
        """Return the same split with language ids as indices into ``language_names``.

        Errors: UserError if the languages are unknown, or one is not among the names.
        """
        if self.language_ids is None:
            raise UserError(
                "the data does not state the language of its documents: prepare it with en=FILE "
                "or --language-column"
            )
        if unknown := [name for name in self.language_names if name not in language_names]:
            raise UserError(
                f"the data holds text in {unknown[0]!r}, and the encoder knows "
                f"{', '.join(language_names)}: "
                f"set encoder.embeddings.languages=[{', '.join(self.language_names)}]"
            )
        ids = np.array([language_names.index(name) for name in self.language_names], np.uint16)
        split = copy(self)
        split.language_ids, split.language_names = ids[self.language_ids], tuple(language_names)
        return split

    def with_occurrences(self) -> Self:
        """Return the same split with ``occurrences``, the token counts of its documents."""
        split = copy(self)
        split.occurrences = TokenOccurrences(split)
        return split

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids of a text, using the data set's tokenizer."""
        return self._tokenizer.encode(text)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self._folder)

    def token_ids(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return the token ids at positions [start, stop)."""
        return self._token_ids[start:stop].astype(np.int32)

    def boundaries(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return the boundary flags at positions [start, stop)."""
        return self._boundaries[start:stop]

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the token ids and boundaries of ``length`` tokens from each start.

        ``starts`` are (B,), the results (B, length).
        """
        positions = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(length)
        return self._token_ids[positions].astype(np.int32), self._boundaries[positions]

    def word_bytes(self, start: int, stop: int) -> NDArray[np.uint16]:
        """Return the UTF-8 bytes of the words that start in [start, stop), in order.

        If a word starts inside a token of the previous word, its bytes are added to that word.
        """
        first = self._num_words_before(start)
        num_words = int(np.count_nonzero(self._boundaries[start:stop] & WORD_START))
        return self._word_bytes[first : first + num_words]

    def _num_words_before(self, position: int) -> int:
        block = position // WORD_RANK_INTERVAL
        since = self._boundaries[block * WORD_RANK_INTERVAL : position] & WORD_START
        before = self._words_before[block] if block < len(self._words_before) else 0
        return int(before) + int(np.count_nonzero(since))


class Dataset:
    """A prepared data set in a data folder.

    ``origin`` is the folder, or its URL in object storage.
    """

    def __init__(self, origin: Path | str, manifest: DatasetManifest) -> None:
        self.origin = str(origin)
        self.manifest = manifest
        self._splits: dict[str, Split] = {}
        self._copy_lock: SharedLock | None = None

    @classmethod
    def open(cls, path: Path | str, is_verified: bool = False) -> "Dataset":
        """Open a data folder and check file sizes; also check the content of a small data set.

        With ``is_verified`` the content is not checked. Data at a URL, such as
        ``s3://bucket/data``, is copied to the local disk, if verified when it is first read.
        Errors: UserError that names the missing, damaged or inconsistent file.
        """
        if (url := storage_url(path)) is not None:
            data = cls(url, remote_manifest(url))
            return data if is_verified else cls.open(data.path)._as_copy_of(data)
        folder = Path(path)
        file = folder / MANIFEST
        if folder.is_file():
            raise UserError(
                f"{folder} is a file, and prepared data is a folder: create one with 'bertwright "
                f"prepare {folder} -o DIR --tokenizer DIR'"
            )
        if not file.is_file():
            raise UserError(
                f"{folder} holds no prepared data (no {MANIFEST}): create it with "
                f"'bertwright prepare TEXT... -o {folder} --tokenizer DIR'"
            )
        data = cls(folder, read_manifest(file))
        files = data.manifest.files
        check_manifest(file, data.manifest)
        for name, expected in files.items():
            _check_size(folder / name, expected)
        num_bytes = sum(file.bytes for file in files.values())
        if not is_verified and num_bytes <= MAX_BYTES_CHECKED_ON_OPEN:
            data.check()
            return data
        check_tokenizer(folder, data.manifest, data.tokenizer)
        for name in data.manifest.splits:
            check_starts(folder, name, open_arrays(folder, name, data.manifest))
        return data

    def _as_copy_of(self, remote: Self) -> Self:
        data = copy(self)
        data.origin, data._copy_lock = remote.origin, remote._copy_lock
        return data

    @cached_property
    def path(self) -> Path:
        """Return the local folder, for data at a URL that of its copy."""
        url = storage_url(self.origin)
        if url is None:
            return Path(self.origin)
        folder, self._copy_lock = local_copy(url, self.manifest)
        return folder

    def check(self) -> None:
        """Check every file against its checksum and against the other files.

        Errors: UserError that names the damaged file.
        """
        for name, expected in self.manifest.files.items():
            _check_size(self.path / name, expected)
            with open(self.path / name, "rb") as opened:
                digest = file_digest(opened, "sha256").hexdigest()
            if digest != expected.sha256:
                raise damage_error(self.path / name, "its checksum differs")
        check_tokenizer(self.path, self.manifest, self.tokenizer)
        for name in self.manifest.splits:
            arrays = open_arrays(self.path, name, self.manifest)
            check_starts(self.path, name, arrays)
            token_counts = check_arrays(self.path, name, arrays, self.manifest)
            if name == TRAIN and not np.array_equal(token_counts, self.token_counts):
                raise damage_error(self.path / TOKEN_COUNTS, "the training split has other tokens")

    def split(self, name: str) -> Split:
        """Return the split of that name, such as ``train`` or ``heldout``."""
        if name not in self.manifest.splits:
            names = ", ".join(self.manifest.splits)
            raise UserError(f"{self.path} has no split {name!r}: it has {names}")
        if name not in self._splits:
            self._splits[name] = Split(self.path, name, self.manifest)
        return self._splits[name]

    def with_split(self, name: str, split: Split) -> Self:
        """Return the same data set with another split of that name."""
        data = copy(self)
        data._splits = {**self._splits, name: split}
        return data

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the data set."""
        return Tokenizer.load(self.path)

    @cached_property
    def token_counts(self) -> NDArray[np.int64]:
        """Return the frequency of each token in the training split, (V,)."""
        return read_token_counts(self.path / TOKEN_COUNTS, self.manifest.tokenizer.vocab_size)

    @cached_property
    def report(self) -> dict[str, Any]:
        """Return the report of the preparation."""
        url = storage_url(self.origin)
        if url is not None:
            text = read_file(join_url(url, REPORT_FILE)).decode()
            return parse_json(text, join_url(url, REPORT_FILE), "prepare the data again")
        file = self.path / REPORT_FILE
        return parse_json(read_text(file), str(file), "prepare the data again")


def unigram_entropy(token_counts: NDArray[np.int64]) -> float:
    """Return the entropy of the token frequencies in nats, the loss of a model without context."""
    probabilities = token_counts[token_counts > 0] / token_counts.sum()
    return float(-(probabilities * np.log(probabilities)).sum())


def open_arrays(folder: Path, split: str, manifest: DatasetManifest) -> dict[str, NDArray[Any]]:
    """Return the memory-mapped arrays of a split by name."""
    arrays: dict[str, NDArray[Any]] = {}
    for spec in manifest.array_specs:
        file, dtype = folder / shard_name(split, spec.name), np.dtype(spec.dtype).newbyteorder("<")
        # A plain array: indexing a memmap object takes ten times as long.
        arrays[spec.name] = (
            np.asarray(np.memmap(file, dtype, mode="r"))
            if file.stat().st_size
            else np.empty(0, dtype)
        )
    return arrays


def _check_size(file: Path, expected: FileInfo) -> None:
    if not file.is_file():
        raise damage_error(file, "it is missing")
    size = file.stat().st_size
    if size != expected.bytes:
        raise damage_error(file, f"it has {size:,} bytes instead of {expected.bytes:,}")
