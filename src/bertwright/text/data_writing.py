"""Writing a data set: its splits, what stands beside them, and what the report says of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertwright.errors import UserError
from bertwright.text.manifest import Counts, LanguageCounts, piece_type
from bertwright.text.piece_cache import Encoded
from bertwright.text.shard_writing import (
    NOTHING,
    TEXT_ALONE,
    Beside,
    Holding,
    SplitWriter,
    write_manifest,
)
from bertwright.text.shards import unigram_entropy
from bertwright.text.splitting import TRAIN
from bertwright.text.tokenizers import Tokenizer


class DataWriter:
    """The splits of a data set while they are written; where they are ``nested``, each begins with
    all that the one before it holds, and the last is the whole."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        names: Sequence[str],
        holding: Holding = TEXT_ALONE,
        nested: bool = False,
    ) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        self._holding = holding
        self._languages: dict[str, int] = {}
        self._writers = {
            name: SplitWriter(folder, name, piece_type(tokenizer.size), holding, self._languages)
            for name in names
        }
        self._piece_counts = {name: np.zeros(tokenizer.size, dtype=np.int64) for name in names}
        self._nested = nested
        self._num_bytes = dict.fromkeys(names, 0)
        self._longest = 0

    @property
    def num_pieces(self) -> int:
        """How many pieces were written so far."""
        return int(sum(counts.sum() for counts in self._piece_counts.values()))

    def append(self, split: str, encoded: Encoded, beside: Beside = NOTHING) -> None:
        """Add documents to a split."""
        self._writers[split].append(encoded, beside)
        found = np.bincount(encoded.pieces, minlength=self._tokenizer.size)
        self._piece_counts[split] += found
        self._num_bytes[split] += encoded.num_bytes
        self._longest = max(self._longest, int(encoded.document_lengths.max(initial=0)))

    def finish(self, sources: list[dict[str, str | int]]) -> dict[str, Any]:
        """Write what stands beside the shards; the part of the report that is known here."""
        splits = {name: writer.finish() for name, writer in self._writers.items()}
        train = self._piece_counts[TRAIN]
        languages = tuple(self._languages)
        manifest = write_manifest(
            self._folder, self._tokenizer, train, splits, sources, languages, self._holding
        )
        whole = list(splits)[-1:] if self._nested else list(splits)
        counts = [splits[name][0] for name in whole]
        pieces = sum((self._piece_counts[name] for name in whole), np.zeros_like(train))
        num_bytes = sum(self._num_bytes[name] for name in whole)
        specials = self._tokenizer.specials
        if pieces[specials.unknown] == pieces.sum() > 0:
            raise UserError(
                "the tokenizer knows no piece of what was read: name one that was made of such; "
                "tables of events are prepared with --item"
            )
        return {
            "hash": manifest.hash,
            "documents": sum(c.documents for c in counts),
            "sentences": sum(c.sentences for c in counts),
            "words": sum(c.words for c in counts),
            "tokens": sum(c.pieces for c in counts),
            "bytes": num_bytes,
            "bytes_per_token": num_bytes / max(1, int(pieces.sum())),
            "unknown_rate": int(pieces[specials.unknown]) / max(1, int(pieces.sum())),
            "special_tokens_in_text": int(pieces[list(self._tokenizer.reserved)].sum()),
            "longest_document": self._longest,
            "unigram_entropy": unigram_entropy(train),
            "splits": {name: _found(counts) for name, (counts, _) in splits.items()},
            **_of_languages(languages, counts),
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
            writer.abandon()


def _found(counts: Counts) -> dict[str, Any]:
    """What a split holds, without a line for each thing that it could hold and does not."""
    held = counts.model_dump(exclude_defaults=True)
    return {"pieces": counts.pieces, "documents": counts.documents, **held}


def _of_languages(languages: Sequence[str], counts: Sequence[Counts]) -> dict[str, Any]:
    """What all splits hold in each language; nothing where they are not known."""
    if not languages:
        return {}
    found = {
        code: [split.languages.get(code, LanguageCounts()) for split in counts]
        for code in languages
    }
    return {
        "translations": sum(split.translations for split in counts),
        "languages": {
            code: {
                "documents": sum(held.documents for held in splits),
                "tokens": sum(held.pieces for held in splits),
            }
            for code, splits in found.items()
        },
    }
