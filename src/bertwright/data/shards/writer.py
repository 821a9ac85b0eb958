"""Writing the arrays and the manifest of a data folder, in constant memory."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.data.languages import MAX_LANGUAGES
from bertwright.data.shards.manifest import (
    MANIFEST,
    TOKEN_COUNTS,
    WORD_RANK_INTERVAL,
    DatasetManifest,
    FileInfo,
    LanguageCounts,
    SplitCounts,
    TokenizerInfo,
    dataset_hash,
    shard_name,
    smallest_token_dtype,
)
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.token_cache import EncodedDocuments
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE as TOKENIZER_FILE
from bertwright.data.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True)
class DocumentLanguages:
    """A language code for each document that has tokens, and which of them are translations.

    ``translations`` are the indices of documents that translate the one before.
    """

    languages: Sequence[str]
    translations: NDArray[np.int64]


@dataclass(frozen=True)
class DocumentAnnotations:
    """A set of annotations of encoded documents.

    ``phrases`` and ``entities`` are token spans [start, stop), (S, 2) each; ``turns`` are pairs of
    first token and speaker, (T, 2); ``capitals`` are the tokens where a capitalised word starts,
    (C,).
    """

    languages: DocumentLanguages | None = None
    phrases: NDArray[np.int64] | None = None
    entities: NDArray[np.int64] | None = None
    turns: NDArray[np.int64] | None = None
    capitals: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class DatasetFeatures:
    """A set of flags for the optional arrays of a data set."""

    languages: bool = False
    annotations: bool = False
    dialogues: bool = False
    capitals: bool = False


NO_ANNOTATIONS = DocumentAnnotations()
TEXT_ONLY = DatasetFeatures()


class SplitWriter:
    """A writer that appends encoded documents to the files of one split.

    ``language_ids`` collects the ids of the data set's languages and is shared by its splits.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        token_dtype: str,
        features: DatasetFeatures,
        language_ids: dict[str, int],
    ) -> None:
        self._files: list[_ArrayFile] = []

        def array(kind: str, dtype: str) -> _ArrayFile:
            self._files.append(_ArrayFile(folder / shard_name(name, kind), dtype))
            return self._files[-1]

        self._token_ids = array("tokens", token_dtype)
        self._boundaries = array("boundaries", "uint8")
        self._word_bytes = array("word_bytes", "uint16")
        self._words_before = array("words_before", "int64")
        self._documents = array("documents", "int64")
        self._sentences = array("sentences", "int64")
        self._languages = None
        if features.languages:
            languages, translations = array("languages", "uint16"), array("translations", "int64")
            self._languages = _LanguageWriter(languages, translations, language_ids)
        span_kinds = ("phrase", "entity") if features.annotations else ()
        self._spans = {
            kind: (array(f"{kind}_starts", "int64"), array(f"{kind}_stops", "int64"))
            for kind in span_kinds
        }
        self._turns = None
        if features.dialogues:
            self._turns = array("turn_starts", "int64"), array("turn_speakers", "uint8")
        self._capitals = array("capitals", "int64") if features.capitals else None

    def append(
        self, encoded: EncodedDocuments, annotations: DocumentAnnotations = NO_ANNOTATIONS
    ) -> None:
        """Append documents."""
        position = self._token_ids.length
        if self._languages is not None and annotations.languages is not None:
            lengths = encoded.document_lengths[encoded.document_lengths > 0]
            self._languages.append(annotations.languages, lengths)
        for kind, spans in (("phrase", annotations.phrases), ("entity", annotations.entities)):
            if spans is not None:
                for file, ends in zip(self._spans[kind], spans.T, strict=True):
                    file.append(position + ends)
        if self._turns is not None and annotations.turns is not None:
            self._turns[0].append(position + annotations.turns[:, 0])
            self._turns[1].append(annotations.turns[:, 1])
        if self._capitals is not None and annotations.capitals is not None:
            self._capitals.append(position + annotations.capitals)
        boundaries = encoded.boundaries
        words = np.cumsum(boundaries & WORD_START, dtype=np.int64)
        ranked = np.arange(-position % WORD_RANK_INTERVAL, len(boundaries), WORD_RANK_INTERVAL)
        before = words[ranked] - (boundaries[ranked] & WORD_START)
        self._words_before.append(self._word_bytes.length + before)
        self._token_ids.append(encoded.token_ids)
        self._boundaries.append(boundaries)
        self._word_bytes.append(encoded.word_bytes)
        self._documents.append(position + np.flatnonzero(boundaries & DOCUMENT_START))
        self._sentences.append(position + np.flatnonzero(boundaries & SENTENCE_START))

    def finish(self) -> tuple[SplitCounts, dict[str, FileInfo]]:
        """Close the files; return their counts and file infos."""
        counts = SplitCounts(
            tokens=self._token_ids.length,
            documents=self._documents.length,
            sentences=self._sentences.length,
            words=self._word_bytes.length,
            translations=self._languages.translations.length if self._languages else 0,
            phrases=self._spans["phrase"][0].length if self._spans else 0,
            entities=self._spans["entity"][0].length if self._spans else 0,
            turns=self._turns[0].length if self._turns else 0,
            languages=self._languages.counts if self._languages else {},
        )
        end = np.array([self._token_ids.length])
        self._documents.append(end)
        self._sentences.append(end)
        return counts, {file.name: file.close() for file in self._files}

    def abort(self) -> None:
        """Close the files, ignoring errors."""
        for file in self._files:
            file.abort()


class _LanguageWriter:
    """A writer of the languages and translations of one split."""

    def __init__(
        self, languages: "_ArrayFile", translations: "_ArrayFile", language_ids: dict[str, int]
    ) -> None:
        self.languages = languages
        self.translations = translations
        self.counts: dict[str, LanguageCounts] = {}
        self._language_ids = language_ids

    def append(self, languages: DocumentLanguages, lengths: NDArray[np.int64]) -> None:
        """Append documents with these numbers of tokens."""
        for code in languages.languages:
            self._language_ids.setdefault(code, len(self._language_ids))
        if len(self._language_ids) > MAX_LANGUAGES:
            raise UserError(
                f"the text has more than {MAX_LANGUAGES:,} languages: name the column that holds "
                f"their codes with --language-column"
            )
        self.translations.append(self.languages.length + languages.translations)
        ids = np.array([self._language_ids[code] for code in languages.languages], np.int64)
        self.languages.append(ids)
        num_tokens, num_documents = np.bincount(ids, lengths), np.bincount(ids)
        for code in dict.fromkeys(languages.languages):
            index, counts = self._language_ids[code], self.counts.get(code, LanguageCounts())
            self.counts[code] = LanguageCounts(
                tokens=counts.tokens + int(num_tokens[index]),
                documents=counts.documents + int(num_documents[index]),
            )


class _ArrayFile:
    """An array that grows in a file, with its checksum."""

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

    def close(self) -> FileInfo:
        self._file.close()
        return FileInfo(bytes=self.length * self._dtype.itemsize, sha256=self._digest.hexdigest())

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def write_manifest(
    folder: Path,
    tokenizer: Tokenizer,
    token_counts: NDArray[np.int64],
    splits: dict[str, tuple[SplitCounts, dict[str, FileInfo]]],
    sources: list[dict[str, str | int]],
    languages: tuple[str, ...] = (),
    features: DatasetFeatures = TEXT_ONLY,
) -> DatasetManifest:
    """Write tokenizer and token counts, then the manifest."""
    tokenizer.save(folder)
    np.save(folder / TOKEN_COUNTS, token_counts)
    files = {name: info for _, infos in splits.values() for name, info in infos.items()}
    for name in (TOKEN_COUNTS, TOKENIZER_FILE):
        content = (folder / name).read_bytes()
        files[name] = FileInfo(bytes=len(content), sha256=sha256(content).hexdigest())
    info = TokenizerInfo(kind=tokenizer.kind, vocab_size=tokenizer.vocab_size, hash=tokenizer.hash)
    manifest = DatasetManifest(
        hash=dataset_hash(info, files, languages),
        tokenizer=info,
        token_dtype=smallest_token_dtype(tokenizer.vocab_size),
        splits={name: counts for name, (counts, _) in splits.items()},
        files=files,
        sources=sources,
        languages=languages,
        has_annotations=features.annotations,
        has_dialogues=features.dialogues,
        has_capitals=features.capitals,
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    return manifest
