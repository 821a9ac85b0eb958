"""Writing a data set: its splits, its manifest and the counts of its report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertwright.core.errors import UserError
from bertwright.data.holdout import TRAIN
from bertwright.data.shards.dataset import unigram_entropy
from bertwright.data.shards.manifest import LanguageCounts, SplitCounts, smallest_token_dtype
from bertwright.data.shards.writer import (
    NO_ANNOTATIONS,
    TEXT_ONLY,
    DatasetFeatures,
    DocumentAnnotations,
    SplitWriter,
    write_manifest,
)
from bertwright.data.tokenization.token_cache import EncodedDocuments
from bertwright.data.tokenization.tokenizer import Tokenizer


class DatasetWriter:
    """A writer of the splits of a data set.

    If the splits are nested, each contains the one before, and the last contains all.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        split_names: Sequence[str],
        features: DatasetFeatures = TEXT_ONLY,
        is_nested: bool = False,
    ) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        self._features = features
        self._language_ids: dict[str, int] = {}
        self._writers = {
            name: SplitWriter(
                folder,
                name,
                smallest_token_dtype(tokenizer.vocab_size),
                features,
                self._language_ids,
            )
            for name in split_names
        }
        self._token_counts = {
            name: np.zeros(tokenizer.vocab_size, dtype=np.int64) for name in split_names
        }
        self._is_nested = is_nested
        self._num_bytes = dict.fromkeys(split_names, 0)
        self._max_document_length = 0

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens written so far."""
        return int(sum(counts.sum() for counts in self._token_counts.values()))

    def append(
        self,
        split: str,
        encoded: EncodedDocuments,
        annotations: DocumentAnnotations = NO_ANNOTATIONS,
    ) -> None:
        """Add documents to a split."""
        self._writers[split].append(encoded, annotations)
        self._token_counts[split] += np.bincount(
            encoded.token_ids, minlength=self._tokenizer.vocab_size
        )
        self._num_bytes[split] += encoded.num_bytes
        self._max_document_length = max(
            self._max_document_length, int(encoded.document_lengths.max(initial=0))
        )

    def finish(self, sources: list[dict[str, str | int]]) -> dict[str, Any]:
        """Write tokenizer, token counts and manifest; return the counts for the report."""
        splits = {name: writer.finish() for name, writer in self._writers.items()}
        train = self._token_counts[TRAIN]
        languages = tuple(self._language_ids)
        manifest = write_manifest(
            self._folder, self._tokenizer, train, splits, sources, languages, self._features
        )
        names = list(splits)[-1:] if self._is_nested else list(splits)
        counts = [splits[name][0] for name in names]
        token_counts = sum((self._token_counts[name] for name in names), np.zeros_like(train))
        num_tokens = int(token_counts.sum())
        num_unknown = int(token_counts[self._tokenizer.special_tokens.unknown])
        num_bytes = sum(self._num_bytes[name] for name in names)
        if num_unknown == num_tokens > 0:
            raise UserError(
                "every token of the input is unknown: choose a tokenizer trained on similar text; "
                "tables of events are prepared with --item"
            )
        return {
            "hash": manifest.hash,
            "documents": sum(c.documents for c in counts),
            "sentences": sum(c.sentences for c in counts),
            "words": sum(c.words for c in counts),
            "tokens": sum(c.tokens for c in counts),
            "bytes": num_bytes,
            "bytes_per_token": num_bytes / max(1, num_tokens),
            "unknown_rate": num_unknown / max(1, num_tokens),
            "special_tokens_in_text": int(token_counts[list(self._tokenizer.reserved_ids)].sum()),
            "longest_document": self._max_document_length,
            "unigram_entropy": unigram_entropy(train),
            "splits": {name: _split_summary(counts) for name, (counts, _) in splits.items()},
            **_language_summary(languages, counts),
            **{
                name: total
                for name in ("phrases", "entities", "turns")
                if (total := sum(getattr(split, name) for split in counts))
            },
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.abort()


def _split_summary(counts: SplitCounts) -> dict[str, Any]:
    """Return the counts of a split; zero counts other than tokens and documents are left out."""
    summary = counts.model_dump(exclude_defaults=True)
    return {"tokens": counts.tokens, "documents": counts.documents, **summary}


def _language_summary(languages: Sequence[str], counts: Sequence[SplitCounts]) -> dict[str, Any]:
    """Return the counts of each language over all splits; {} if languages are unknown."""
    if not languages:
        return {}
    by_language = {
        code: [split.languages.get(code, LanguageCounts()) for split in counts]
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
