"""Writers for the arrays and the manifest of a data folder, in constant memory."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.data.holdout import TRAIN
from bertwright.data.languages import MAX_LANGUAGES
from bertwright.data.shards.dataset import unigram_entropy
from bertwright.data.shards.manifest import (
    MANIFEST,
    TOKEN_COUNTS,
    WORD_RANK_INTERVAL,
    DatasetFeatures,
    DatasetManifest,
    FileInfo,
    LanguageCounts,
    SplitCounts,
    TokenizerInfo,
    array_specs,
    dataset_hash,
    shard_name,
    smallest_token_dtype,
)
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.token_cache import EncodedDocuments
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer

TEXT_ONLY = DatasetFeatures()

OptionalArrays = Mapping[str, NDArray[Any]]
"""Optional arrays of encoded documents by name; indices are relative to these documents."""


class DatasetWriter:
    """A writer for the splits of a data set.

    With ``is_nested`` each split contains the one before it, and the last contains all tokens.
    ``open_shard`` opens the file of an array by its name; by default a file in the folder.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        split_names: Sequence[str],
        features: DatasetFeatures = TEXT_ONLY,
        is_nested: bool = False,
        open_shard: Callable[[str], BinaryIO] | None = None,
    ) -> None:
        self._folder = folder
        opener = open_shard or partial(_open_in_folder, folder)
        self._tokenizer = tokenizer
        self._features = features
        self._language_ids: dict[str, int] = {}
        self._writers = {
            name: _SplitWriter(opener, name, tokenizer.vocab_size, features, self._language_ids)
            for name in split_names
        }
        self._is_nested = is_nested

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens written so far."""
        return int(sum(writer.token_counts.sum() for writer in self._writers.values()))

    def append(
        self,
        split: str,
        encoded: EncodedDocuments,
        arrays: OptionalArrays | None = None,
        languages: Sequence[str] = (),
    ) -> None:
        """Append documents to a split, with the language of each document that has tokens."""
        self._writers[split].append(encoded, arrays or {}, languages)

    def finish(self, sources: list[dict[str, str | int]]) -> dict[str, Any]:
        """Write tokenizer, token counts and manifest; return the counts for the report."""
        splits = {name: writer.finish() for name, writer in self._writers.items()}
        train = self._writers[TRAIN].token_counts
        manifest = self._write_manifest(splits, sources)
        names = list(splits)[-1:] if self._is_nested else list(splits)
        counts = [splits[name][0] for name in names]
        writers = [self._writers[name] for name in names]
        token_counts = sum((writer.token_counts for writer in writers), np.zeros_like(train))
        num_tokens = int(token_counts.sum())
        num_unknown = int(token_counts[self._tokenizer.special_tokens.unknown])
        num_bytes = sum(writer.num_bytes for writer in writers)
        if num_unknown == num_tokens > 0:
            raise UserError(
                "every token of the input is unknown: choose a tokenizer trained on similar text; "
                "tables of events are prepared with --item"
            )

        def total(name: str) -> int:
            return sum(getattr(split, name) for split in counts)

        return {
            "hash": manifest.hash,
            **{name: total(name) for name in ("documents", "sentences", "words", "tokens")},
            "bytes": num_bytes,
            "bytes_per_token": num_bytes / max(1, num_tokens),
            "unknown_rate": num_unknown / max(1, num_tokens),
            "special_tokens_in_text": int(token_counts[list(self._tokenizer.reserved_ids)].sum()),
            "longest_document": max(w.max_document_length for w in self._writers.values()),
            "unigram_entropy": unigram_entropy(train),
            "splits": {name: _split_summary(counts) for name, (counts, _) in splits.items()},
            **_language_summary(manifest.languages, counts),
            **{name: total(name) for name in ("phrases", "entities", "turns") if total(name)},
        }

    def _write_manifest(
        self,
        splits: Mapping[str, tuple[SplitCounts, dict[str, FileInfo]]],
        sources: list[dict[str, str | int]],
    ) -> DatasetManifest:
        tokenizer, languages = self._tokenizer, tuple(self._language_ids)
        tokenizer.save(self._folder)
        np.save(self._folder / TOKEN_COUNTS, self._writers[TRAIN].token_counts)
        files = {name: info for _, infos in splits.values() for name, info in infos.items()}
        for name in (TOKEN_COUNTS, TOKENIZER_FILE):
            content = (self._folder / name).read_bytes()
            files[name] = FileInfo(bytes=len(content), sha256=sha256(content).hexdigest())
        info = TokenizerInfo(
            kind=tokenizer.kind, vocab_size=tokenizer.vocab_size, hash=tokenizer.hash
        )
        manifest = DatasetManifest(
            hash=dataset_hash(info, files, languages),
            tokenizer=info,
            token_dtype=smallest_token_dtype(tokenizer.vocab_size),
            splits={name: counts for name, (counts, _) in splits.items()},
            files=files,
            sources=sources,
            languages=languages,
            has_annotations=self._features.annotations,
            has_dialogues=self._features.dialogues,
            has_capitals=self._features.capitals,
        )
        (self._folder / MANIFEST).write_text(
            manifest.model_dump_json(indent=1) + "\n", encoding="utf-8"
        )
        return manifest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.abort()


class _SplitWriter:
    """A writer that appends encoded documents to the files of one split.

    ``language_ids`` collects the ids of the data set's languages and is shared by its splits.
    """

    def __init__(
        self,
        open_shard: Callable[[str], BinaryIO],
        name: str,
        vocab_size: int,
        features: DatasetFeatures,
        language_ids: dict[str, int],
    ) -> None:
        self.token_counts = np.zeros(vocab_size, np.int64)
        self.num_bytes = 0
        self.max_document_length = 0
        self._language_ids = language_ids
        self._language_documents: Counter[str] = Counter()
        self._language_tokens: Counter[str] = Counter()
        self._specs = array_specs(features, smallest_token_dtype(vocab_size))
        self._files = {
            spec.name: _ArrayFile(shard_name(name, spec.name), open_shard, spec.dtype)
            for spec in self._specs
        }

    def append(
        self, encoded: EncodedDocuments, optional: OptionalArrays, languages: Sequence[str]
    ) -> None:
        """Append documents."""
        lengths = {name: file.length for name, file in self._files.items()}
        boundaries = encoded.boundaries
        words = np.cumsum(boundaries & WORD_START, dtype=np.int64)
        ranked = np.arange(
            -lengths["tokens"] % WORD_RANK_INTERVAL, len(boundaries), WORD_RANK_INTERVAL
        )
        arrays = {
            **optional,
            "tokens": encoded.token_ids,
            "boundaries": boundaries,
            "word_bytes": encoded.word_bytes,
            "words_before": words[ranked] - (boundaries[ranked] & WORD_START),
            "documents": np.flatnonzero(boundaries & DOCUMENT_START),
            "sentences": np.flatnonzero(boundaries & SENTENCE_START),
            "languages": self._number_languages(languages, encoded.document_lengths),
        }
        for spec in self._specs:
            offset = 0 if spec.indexes is None else lengths[spec.indexes]
            self._files[spec.name].append(
                arrays[spec.name] + offset if offset else arrays[spec.name]
            )
        self.token_counts += np.bincount(encoded.token_ids, minlength=len(self.token_counts))
        self.num_bytes += encoded.num_bytes
        self.max_document_length = max(
            self.max_document_length, int(encoded.document_lengths.max(initial=0))
        )

    def _number_languages(
        self, languages: Sequence[str], document_lengths: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the id of each document's language, and count documents and tokens by language."""
        for code in languages:
            self._language_ids.setdefault(code, len(self._language_ids))
        if len(self._language_ids) > MAX_LANGUAGES:
            raise UserError(
                f"the text has more than {MAX_LANGUAGES:,} languages: name the column that holds "
                f"their codes with --language-column"
            )
        self._language_documents.update(languages)
        if languages:
            lengths = document_lengths[document_lengths > 0].tolist()
            for code, length in zip(languages, lengths, strict=True):
                self._language_tokens[code] += length
        return np.array([self._language_ids[code] for code in languages], np.int64)

    def finish(self) -> tuple[SplitCounts, dict[str, FileInfo]]:
        """Close the files; return their counts and file infos."""
        lengths = Counter({name: file.length for name, file in self._files.items()})
        counts = SplitCounts(
            tokens=lengths["tokens"],
            documents=lengths["documents"],
            sentences=lengths["sentences"],
            words=lengths["word_bytes"],
            translations=lengths["translations"],
            phrases=lengths["phrase_starts"],
            entities=lengths["entity_starts"],
            turns=lengths["turn_starts"],
            languages={
                code: LanguageCounts(tokens=self._language_tokens[code], documents=num_documents)
                for code, num_documents in self._language_documents.items()
            },
        )
        for name in ("documents", "sentences"):
            self._files[name].append(np.array([counts.tokens]))
        return counts, {file.name: file.close() for file in self._files.values()}

    def abort(self) -> None:
        """Close the files, ignoring errors."""
        for file in self._files.values():
            file.abort()


class _ArrayFile:
    """An array that grows in a file while its checksum is computed."""

    def __init__(self, name: str, open_shard: Callable[[str], BinaryIO], dtype: str) -> None:
        self.name = name
        self.length = 0
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._digest = sha256()
        self._file = open_shard(name)

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


def _open_in_folder(folder: Path, name: str) -> BinaryIO:
    return (folder / name).open("wb")


def _split_summary(counts: SplitCounts) -> dict[str, Any]:
    """Return the counts of a split without zeros, except for tokens and documents."""
    summary = counts.model_dump(exclude_defaults=True)
    return {"tokens": counts.tokens, "documents": counts.documents, **summary}


def _language_summary(languages: Sequence[str], counts: Sequence[SplitCounts]) -> dict[str, Any]:
    """Return the counts of each language over all splits; {} if languages are unknown."""
    if not languages:
        return {}
    by_language = {
        code: [split.languages[code] for split in counts if code in split.languages]
        for code in languages
    }
    return {
        "translations": sum(split.translations for split in counts),
        "languages": {
            code: {
                "documents": sum(split.documents for split in splits),
                "tokens": sum(split.tokens for split in splits),
            }
            for code, splits in by_language.items()
        },
    }
