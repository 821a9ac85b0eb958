"""A prepared data set: memory-mapped pieces with the places where words, sentences and documents
start, as training reads it.

A data folder holds ``manifest.json``, ``report.json``, the tokenizer, ``piece_counts.npy`` and, for
each split, one file (*shard*) for each array:

- ``pieces``: uint16 where the vocabulary allows, else uint32; no special pieces are added;
- ``marks``: uint8, one a piece: the bits WORD_START, SENTENCE_START, DOCUMENT_START;
- ``documents``, ``sentences``: int64, the positions where they start, and the end of the last;
- ``word_bytes``: uint16, the UTF-8 bytes of each word, in the order of the words' starts;
- ``words_before``: int64, how many words start before each position that is a multiple of 1,024.

Where the languages of the documents are known there are also

- ``languages``: uint16, one a document: which of the manifest's ``languages`` it is in;
- ``translations``: int64, the documents that translate the document before them, in order.

Where stretches of the text are annotated there are ``phrase_starts``, ``phrase_stops``,
``entity_starts`` and ``entity_stops``: int64, the pieces [start, stop) of each, in order; where
there are dialogues ``turn_starts``, int64, and ``turn_speakers``, uint8, one a turn; where capitals
are kept ``capitals``, int64, the pieces at which a word with a capital letter starts.
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

from bertwright.errors import UserError
from bertwright.files import parse_json, read_text
from bertwright.text.consistency import (
    check_arrays,
    check_manifest,
    check_starts,
    check_tokenizer,
    read_piece_counts,
)
from bertwright.text.manifest import (
    MANIFEST,
    PIECE_COUNTS,
    RANK_EVERY,
    File,
    Manifest,
    damaged,
    read_manifest,
    shard_name,
)
from bertwright.text.marks import WORD_START
from bertwright.text.occurrences import Occurrences
from bertwright.text.splitting import TRAIN
from bertwright.text.tokenizers import Tokenizer

REPORT = "report.json"
CHECKED_AT_OPENING = 1 << 30
"""What a larger data set (in bytes) holds is left to :meth:`Data.check`; sizes never are."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """The pieces [start, stop) of stretches of a text, in order and without overlap: (S,) each."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def at(self, position: NDArray[np.int64]) -> NDArray[np.int32]:
        """The number of the stretch that holds each position, -1 where none does."""
        if not len(self.starts):
            return np.full(position.shape, -1, np.int32)
        number = np.searchsorted(self.starts, position, side="right") - 1
        inside = (number >= 0) & (position < self.stops[np.maximum(number, 0)])
        return np.where(inside, number, -1).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """Where the turns of dialogues start, and who speaks, counted within each: (T,) each."""

    starts: NDArray[np.int64]
    speakers: NDArray[np.uint8]


class Split:
    """The pieces of one split, opened read-only and memory-mapped."""

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        def array(kind: str, dtype: str) -> NDArray[Any]:
            return _mapped(folder / shard_name(name, kind), dtype)

        counts = manifest.splits[name]
        self.name = name
        self._folder = folder
        self.num_pieces = counts.pieces
        self.num_documents = counts.documents
        self.num_sentences = counts.sentences
        self.num_words = counts.words
        self.stored_pieces: NDArray[np.unsignedinteger[Any]] = array("pieces", manifest.piece_type)
        self._marks = array("marks", "uint8")
        self._word_bytes = array("word_bytes", "uint16")
        self.words_before: NDArray[np.int64] = array("words_before", "int64")
        self.document_starts: NDArray[np.int64] = array("documents", "int64")
        """(num_documents + 1,) positions in pieces; the last is ``num_pieces``."""
        self.sentence_starts: NDArray[np.int64] = array("sentences", "int64")
        """(num_sentences + 1,) positions in pieces; the last is ``num_pieces``."""
        self.language_names = manifest.languages
        self.languages: NDArray[np.integer[Any]] | None = None
        """(num_documents,) which of ``language_names`` each is in; None where nobody said."""
        self.translations: NDArray[np.int64] = np.empty(0, np.int64)
        """The documents that translate the document before them."""
        if manifest.languages:
            self.languages = array("languages", "uint16")
            self.translations = array("translations", "int64")
        self.phrases: Stretches | None = None
        self.entities: Stretches | None = None
        """Where they stand; None where nobody said."""
        self.turns: Turns | None = None
        """Those of its dialogues; None where there are none."""
        if manifest.annotated:
            self.phrases, self.entities = (
                Stretches(array(f"{kind}_starts", "int64"), array(f"{kind}_stops", "int64"))
                for kind in ("phrase", "entity")
            )
        self.capitals: NDArray[np.int64] | None = None
        """The pieces at which a word with a capital letter starts; None where nobody said."""
        if manifest.capitals:
            self.capitals = array("capitals", "int64")
        if manifest.dialogues:
            self.turns = Turns(
                array("turn_starts", "int64"),
                array("turn_speakers", "uint8"),
            )
        self.occurrences: Occurrences | None = None
        """What its documents hold; None where nobody asks."""

    def numbered(self, names: Sequence[str]) -> Self:
        """The same documents, their languages numbered as in ``names``.

        Errors: UserError where the languages are not known, or one of them is not among the names.
        """
        if self.languages is None:
            raise UserError(
                "the data do not say which language a text is in: prepare them with en=FILE or "
                "--language-column"
            )
        if unknown := [name for name in self.language_names if name not in names]:
            raise UserError(
                f"the data hold text in {unknown[0]!r}, and the encoder knows {', '.join(names)}: "
                f"state encoder.embeddings.languages=[{', '.join(self.language_names)}]"
            )
        numbers = np.array([names.index(name) for name in self.language_names], np.uint16)
        same = copy(self)
        same.languages, same.language_names = numbers[self.languages], tuple(names)
        return same

    def with_occurrences(self) -> Self:
        """The same documents, of which rows are told what else stands in them."""
        same = copy(self)
        same.occurrences = Occurrences(same)
        return same

    def pieces_of(self, text: str) -> list[int]:
        """The pieces of another text, cut as this one was."""
        return self._tokenizer.encode(text)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self._folder)

    def pieces(self, start: int, stop: int) -> NDArray[np.int32]:
        """The pieces of [start, stop)."""
        return self.stored_pieces[start:stop].astype(np.int32)

    def marks(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The marks of [start, stop)."""
        return self._marks[start:stop]

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Pieces and marks, (B, length) each, of the stretches that begin at ``starts`` (B,)."""
        places = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(length)
        return self.stored_pieces[places].astype(np.int32), self._marks[places]

    def word_bytes(self, start: int, stop: int) -> NDArray[np.uint16]:
        """UTF-8 bytes of the words that start in [start, stop), in order.

        A word that starts inside a piece of the word before it counts there.
        """
        first = self._num_words_before(start)
        inside = int(np.count_nonzero(self._marks[start:stop] & WORD_START))
        return self._word_bytes[first : first + inside]

    def _num_words_before(self, position: int) -> int:
        block = position // RANK_EVERY
        since = self._marks[block * RANK_EVERY : position] & WORD_START
        before = self.words_before[block] if block < len(self.words_before) else 0
        return int(before) + int(np.count_nonzero(since))


class Data:
    """A prepared data set."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._splits: dict[str, Split] = {}

    @classmethod
    def open(cls, path: Path | str) -> "Data":
        """Open a data folder; its sizes are checked, and its content where that is quick.

        Errors: UserError where there is no whole data set, naming the file that is damaged or says
        otherwise than the others.
        """
        folder = Path(path)
        file = folder / MANIFEST
        if folder.is_file():
            raise UserError(
                f"{folder} is a file, and prepared data are a folder: make one with 'bertwright "
                f"prepare {folder} -o DIR --tokenizer DIR'"
            )
        if not file.is_file():
            raise UserError(
                f"{folder} holds no prepared data (no {MANIFEST}): make it with "
                f"'bertwright prepare TEXT... -o {folder} --tokenizer DIR'"
            )
        data = cls(folder, read_manifest(file))
        files = data.manifest.files
        check_manifest(file, data.manifest)
        for name, expected in files.items():
            _check_size(folder / name, expected)
        if sum(file.bytes for file in files.values()) <= CHECKED_AT_OPENING:
            data.check()
            return data
        check_tokenizer(folder, data.manifest, data.tokenizer)
        for name in data.manifest.splits:
            check_starts(folder, data.split(name))
        return data

    def check(self) -> None:
        """Read every file, and compare it with its checksum and with what the others say.

        Errors: UserError that names the damaged one.
        """
        for name, expected in self.manifest.files.items():
            _check_size(self.path / name, expected)
            with open(self.path / name, "rb") as opened:
                digest = file_digest(opened, "sha256").hexdigest()
            if digest != expected.sha256:
                raise damaged(self.path / name, "its checksum differs")
        check_tokenizer(self.path, self.manifest, self.tokenizer)
        for name in self.manifest.splits:
            split = self.split(name)
            check_starts(self.path, split)
            found = check_arrays(self.path, split, self.manifest.tokenizer.size)
            if name == TRAIN and not np.array_equal(found, self.piece_counts):
                raise damaged(self.path / PIECE_COUNTS, "the training split has other pieces")

    def split(self, name: str) -> Split:
        """The split of that name, ``train`` or ``heldout``."""
        if name not in self.manifest.splits:
            known = ", ".join(self.manifest.splits)
            raise UserError(f"{self.path} has no split {name!r}: it has {known}")
        if name not in self._splits:
            self._splits[name] = Split(self.path, name, self.manifest)
        return self._splits[name]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the pieces."""
        return Tokenizer.load(self.path)

    @cached_property
    def piece_counts(self) -> NDArray[np.int64]:
        """(V,) how often each piece stands in the training split."""
        return read_piece_counts(self.path / PIECE_COUNTS, self.manifest.tokenizer.size)

    @cached_property
    def report(self) -> dict[str, Any]:
        """What preparation counted and measured."""
        file = self.path / REPORT
        return parse_json(read_text(file), str(file), "prepare the data again")


def unigram_entropy(piece_counts: NDArray[np.int64]) -> float:
    """The entropy, in nats, of a piece drawn by its frequency: what knowing no context costs."""
    share = piece_counts[piece_counts > 0] / piece_counts.sum()
    return float(-(share * np.log(share)).sum())


def _mapped(file: Path, dtype: str) -> NDArray[Any]:
    if file.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    # A plain view: indexing a memmap object costs ten times as much as the reading.
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))


def _check_size(file: Path, expected: File) -> None:
    if not file.is_file():
        raise damaged(file, "it is missing")
    size = file.stat().st_size
    if size != expected.bytes:
        raise damaged(file, f"it has {size:,} bytes instead of {expected.bytes:,}")
