"""Writing a data folder, array by array, in constant memory."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.text.languages import MOST_LANGUAGES
from bertwright.text.manifest import (
    MANIFEST,
    PIECE_COUNTS,
    RANK_EVERY,
    Counts,
    File,
    LanguageCounts,
    Manifest,
    TokenizerIdentity,
    content_hash,
    piece_type,
    shard_name,
)
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.piece_cache import Encoded
from bertwright.text.tokenizers import FILE as TOKENIZER_FILE
from bertwright.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Spoken:
    """Of the documents in an :class:`Encoded` that have pieces: the code of the language of each,
    and which of them (by number) translate the one before."""

    languages: Sequence[str]
    translations: NDArray[np.int64]


@dataclass(frozen=True)
class Beside:
    """What is known of the documents in an :class:`Encoded` beside their pieces: their languages;
    the pieces [first, stop) of phrases and of entities, (S, 2) each; turns and who speaks, (T, 2);
    the pieces at which a word with a capital letter starts, (C,).
    """

    spoken: Spoken | None = None
    phrases: NDArray[np.int64] | None = None
    entities: NDArray[np.int64] | None = None
    turns: NDArray[np.int64] | None = None
    capitals: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Holding:
    """What a data set holds beside the pieces of its text: languages, phrases and entities,
    dialogues, capital letters that the pieces do not show."""

    languages: bool = False
    annotations: bool = False
    dialogues: bool = False
    capitals: bool = False


NOTHING = Beside()
TEXT_ALONE = Holding()


class SplitWriter:
    """Appends encoded documents to the files of one split.

    ``numbers`` collects the languages of the data set, each with its number.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        piece_type: str,
        holding: Holding,
        numbers: dict[str, int],
    ) -> None:
        self._files: list[_ArrayFile] = []

        def array(kind: str, dtype: str) -> _ArrayFile:
            self._files.append(_ArrayFile(folder / shard_name(name, kind), dtype))
            return self._files[-1]

        self._pieces = array("pieces", piece_type)
        self._marks = array("marks", "uint8")
        self._word_bytes = array("word_bytes", "uint16")
        self._words_before = array("words_before", "int64")
        self._documents = array("documents", "int64")
        self._sentences = array("sentences", "int64")
        self._speech = None
        if holding.languages:
            languages, translations = array("languages", "uint16"), array("translations", "int64")
            self._speech = _SpeechWriter(languages, translations, numbers)
        kinds = ("phrase", "entity") if holding.annotations else ()
        self._stretches = {
            kind: (array(f"{kind}_starts", "int64"), array(f"{kind}_stops", "int64"))
            for kind in kinds
        }
        self._turns = None
        if holding.dialogues:
            self._turns = array("turn_starts", "int64"), array("turn_speakers", "uint8")
        self._capitals = array("capitals", "int64") if holding.capitals else None

    def append(self, encoded: Encoded, beside: Beside = NOTHING) -> None:
        """Add documents after those that are there."""
        position = self._pieces.length
        if self._speech is not None and beside.spoken is not None:
            lengths = encoded.document_lengths[encoded.document_lengths > 0]
            self._speech.append(beside.spoken, lengths)
        for kind, known in (("phrase", beside.phrases), ("entity", beside.entities)):
            if known is not None:
                for file, places in zip(self._stretches[kind], known.T, strict=True):
                    file.append(position + places)
        if self._turns is not None and beside.turns is not None:
            self._turns[0].append(position + beside.turns[:, 0])
            self._turns[1].append(beside.turns[:, 1])
        if self._capitals is not None and beside.capitals is not None:
            self._capitals.append(position + beside.capitals)
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
            translations=self._speech.translations.length if self._speech else 0,
            phrases=self._stretches["phrase"][0].length if self._stretches else 0,
            entities=self._stretches["entity"][0].length if self._stretches else 0,
            turns=self._turns[0].length if self._turns else 0,
            languages=self._speech.counts if self._speech else {},
        )
        end = np.array([self._pieces.length])
        self._documents.append(end)
        self._sentences.append(end)
        return counts, {file.name: file.close() for file in self._files}

    def abandon(self) -> None:
        """Close the files without caring what reached the disk."""
        for file in self._files:
            file.abandon()


class _SpeechWriter:
    """The languages of the documents of one split, and which of them are translations."""

    def __init__(
        self, languages: "_ArrayFile", translations: "_ArrayFile", numbers: dict[str, int]
    ) -> None:
        self.languages = languages
        self.translations = translations
        self.counts: dict[str, LanguageCounts] = {}
        self._numbers = numbers

    def append(self, spoken: Spoken, lengths: NDArray[np.int64]) -> None:
        """Add documents of these lengths in pieces."""
        for code in spoken.languages:
            self._numbers.setdefault(code, len(self._numbers))
        if len(self._numbers) > MOST_LANGUAGES:
            raise UserError(
                f"the text has more than {MOST_LANGUAGES:,} languages: name the column that holds "
                f"their codes with --language-column"
            )
        self.translations.append(self.languages.length + spoken.translations)
        numbers = np.array([self._numbers[code] for code in spoken.languages], np.int64)
        self.languages.append(numbers)
        pieces, documents = np.bincount(numbers, lengths), np.bincount(numbers)
        for code in dict.fromkeys(spoken.languages):
            number, before = self._numbers[code], self.counts.get(code, LanguageCounts())
            self.counts[code] = LanguageCounts(
                pieces=before.pieces + int(pieces[number]),
                documents=before.documents + int(documents[number]),
            )


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


def write_manifest(
    folder: Path,
    tokenizer: Tokenizer,
    piece_counts: NDArray[np.int64],
    splits: dict[str, tuple[Counts, dict[str, File]]],
    sources: list[dict[str, str | int]],
    languages: tuple[str, ...] = (),
    holding: Holding = TEXT_ALONE,
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
        hash=content_hash(identity, files, languages),
        tokenizer=identity,
        piece_type=piece_type(tokenizer.size),
        splits={name: counts for name, (counts, _) in splits.items()},
        files=files,
        sources=sources,
        languages=languages,
        annotated=holding.annotations,
        dialogues=holding.dialogues,
        capitals=holding.capitals,
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    return manifest
