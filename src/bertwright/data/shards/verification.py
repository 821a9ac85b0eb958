"""Consistency checks of a data folder: manifest, arrays and tokenizer.

Checksums only show that files match the manifest. The checks here follow from the tokens and their
boundaries.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.data.holdout import TRAIN
from bertwright.data.shards.manifest import (
    MANIFEST,
    TOKEN_COUNTS,
    WORD_RANK_INTERVAL,
    DatasetManifest,
    SplitCounts,
    damage_error,
    dataset_hash,
    shard_name,
    smallest_token_dtype,
)
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE as TOKENIZER_FILE
from bertwright.data.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertwright.data.shards.dataset import Split

_BLOCK_LENGTH = 1 << 22


def check_manifest(file: Path, manifest: DatasetManifest) -> None:
    """Raise UserError if a manifest's files do not match its splits and counts."""
    sizes = {
        shard_name(split, array): size
        for split, counts in manifest.splits.items()
        for array, size in _array_sizes(manifest, counts).items()
    }
    names = {*sizes, TOKEN_COUNTS, TOKENIZER_FILE}
    if TRAIN not in manifest.splits:
        raise damage_error(file, f"it has no split {TRAIN}")
    if odd := sorted(names ^ manifest.files.keys()):
        verb = "lack" if odd[0] in names else "should not hold"
        raise damage_error(file, f"its files {verb} {odd[0]!r}")
    for name, size in sizes.items():
        if size is not None and manifest.files[name].bytes != size:
            raise damage_error(file, f"by its counts {name} has {size:,} bytes")
    if dataset_hash(manifest.tokenizer, manifest.files, manifest.languages) != manifest.hash:
        raise damage_error(file, "its hash does not match its content")


def check_tokenizer(folder: Path, manifest: DatasetManifest, tokenizer: Tokenizer) -> None:
    """Raise UserError if the manifest names another tokenizer than the folder's."""
    for name in ("kind", "vocab_size", "hash"):
        if getattr(manifest.tokenizer, name) != getattr(tokenizer, name):
            raise damage_error(folder / MANIFEST, f"the tokenizer has another {name}")
    dtype = smallest_token_dtype(tokenizer.vocab_size)
    if manifest.token_dtype != dtype:
        raise damage_error(folder / MANIFEST, f"its tokens are not {dtype}")


def read_token_counts(file: Path, vocab_size: int) -> NDArray[np.int64]:
    """Return the frequency of each token in the training split, (V,)."""
    try:
        counts: NDArray[np.int64] = np.load(file, allow_pickle=False)
    except Exception:  # NumPy evaluates the header as Python, which may raise anything
        raise damage_error(file, "it is not a NumPy array") from None
    if counts.dtype != np.int64 or counts.shape != (vocab_size,) or (counts < 0).any():
        raise damage_error(file, f"it is not {vocab_size:,} counts")
    return counts


def check_starts(folder: Path, split: "Split") -> None:
    """Raise UserError if documents or sentences do not cover the split in order."""
    for name, starts in (
        ("documents", split.document_starts),
        ("sentences", split.sentence_starts),
    ):
        if len(starts) == 1 and not split.num_tokens and not starts[0]:
            continue
        if starts[0] != 0 or starts[-1] != split.num_tokens or (np.diff(starts) < 1).any():
            raise damage_error(folder / shard_name(split.name, name), "they are not in order")


def check_arrays(folder: Path, split: "Split", vocab_size: int) -> NDArray[np.int64]:
    """Check all arrays of a split; return the frequency of each token, (V,).

    Errors: UserError for token ids outside the vocabulary, and for documents, sentences, words or
    annotations that contradict the boundaries and the counts.
    """

    def error(array: str, reason: str) -> UserError:
        return damage_error(folder / shard_name(split.name, array), reason)

    counts, num_words = np.zeros(vocab_size, np.int64), 0
    for start, stop in _blocks(split.num_tokens):
        token_ids, boundaries = split.stored_token_ids[start:stop], split.boundaries(start, stop)
        if int(token_ids.max()) >= vocab_size:
            raise error("tokens", f"a token id is not below {vocab_size:,}")
        counts += np.bincount(token_ids, minlength=vocab_size)
        for array, flag, starts in (
            ("documents", DOCUMENT_START, split.document_starts),
            ("sentences", SENTENCE_START, split.sentence_starts),
        ):
            inside = slice(*np.searchsorted(starts[:-1], (start, stop)))
            if not np.array_equal(starts[inside], start + np.flatnonzero(boundaries & flag)):
                raise error(array, "they do not match the boundaries")
        blocks = np.arange(0, len(boundaries), WORD_RANK_INTERVAL)
        words = np.add.reduceat(boundaries & WORD_START, blocks, dtype=np.int64)
        before = num_words + np.cumsum(words) - words
        first = start // WORD_RANK_INTERVAL
        if not np.array_equal(split.words_before[first : first + len(before)], before):
            raise error("words_before", "they do not match the boundaries")
        num_words += int(words.sum())
    if num_words != split.num_words:
        raise error("word_bytes", f"the boundaries have {num_words:,} words")
    _check_annotation_arrays(folder, split)
    return counts


def _check_annotation_arrays(folder: Path, split: "Split") -> None:
    """Raise UserError for annotation values outside the split, or out of order."""

    def require(array: str, is_valid: bool) -> None:
        if not is_valid:
            raise damage_error(
                folder / shard_name(split.name, array), "a value lies outside the text"
            )

    def is_increasing(values: NDArray[np.int64], limit: int) -> bool:
        inside = not len(values) or (values[0] >= 0 and values[-1] < limit)
        return bool(inside and (np.diff(values) > 0).all())

    if split.language_ids is not None:
        require("languages", bool((split.language_ids < len(split.language_names)).all()))
        require("translations", is_increasing(split.translations, split.num_documents))
    for kind, spans in (("phrase", split.phrases), ("entity", split.entities)):
        if spans is not None:
            require(f"{kind}_starts", is_increasing(spans.starts, split.num_tokens))
            ordered = (spans.stops > spans.starts).all()
            require(f"{kind}_stops", bool(ordered and (spans.stops <= split.num_tokens).all()))
    if split.turns is not None:
        require("turn_starts", is_increasing(split.turns.starts, split.num_tokens))
    if split.capitals is not None:
        require("capitals", is_increasing(split.capitals, split.num_tokens))


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    return (
        (start, min(start + _BLOCK_LENGTH, length)) for start in range(0, length, _BLOCK_LENGTH)
    )


def _array_sizes(manifest: DatasetManifest, counts: SplitCounts) -> dict[str, int | None]:
    """Return the size in bytes of each array of a split; None if the counts do not decide it."""
    arrays: dict[str, int | None] = {
        "tokens": (2 if manifest.token_dtype == "uint16" else 4) * counts.tokens,
        "boundaries": counts.tokens,
        "word_bytes": 2 * counts.words,
        "words_before": 8 * -(-counts.tokens // WORD_RANK_INTERVAL),
        "documents": 8 * (counts.documents + 1),
        "sentences": 8 * (counts.sentences + 1),
    }
    if manifest.languages:
        arrays |= {"languages": 2 * counts.documents, "translations": 8 * counts.translations}
    if manifest.has_annotations:
        arrays |= dict.fromkeys(("phrase_starts", "phrase_stops"), 8 * counts.phrases)
        arrays |= dict.fromkeys(("entity_starts", "entity_stops"), 8 * counts.entities)
    if manifest.has_dialogues:
        arrays |= {"turn_starts": 8 * counts.turns, "turn_speakers": counts.turns}
    if manifest.has_capitals:
        arrays["capitals"] = None
    return arrays
