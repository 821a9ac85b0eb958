"""Consistency checks of a data folder: manifest, arrays and tokenizer.

Checksums only show that files match the manifest. These checks compare arrays, counts and tokenizer
with the tokens and their boundaries.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.data.holdout import TRAIN
from bertwright.data.shards.manifest import (
    MANIFEST,
    TOKEN_COUNTS,
    WORD_RANK_INTERVAL,
    DatasetManifest,
    damage_error,
    dataset_hash,
    shard_name,
    smallest_token_dtype,
)
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer

_BLOCK_LENGTH = 1 << 22


def check_manifest(file: Path, manifest: DatasetManifest) -> None:
    """Raise UserError if a manifest's files do not match its splits and counts."""
    specs = {
        shard_name(split, spec.name): (spec, counts)
        for split, counts in manifest.splits.items()
        for spec in manifest.array_specs
    }
    names = {*specs, TOKEN_COUNTS, TOKENIZER_FILE}
    if TRAIN not in manifest.splits:
        raise damage_error(file, f"it has no split {TRAIN}")
    if odd := sorted(names ^ manifest.files.keys()):
        verb = "lack" if odd[0] in names else "should not hold"
        raise damage_error(file, f"its files {verb} {odd[0]!r}")
    for name, (spec, counts) in specs.items():
        length = spec.length(counts)
        size = (
            manifest.files[name].bytes if length is None else length * np.dtype(spec.dtype).itemsize
        )
        if manifest.files[name].bytes != size:
            raise damage_error(file, f"by its counts {name} has {size:,} bytes")
    if dataset_hash(manifest.tokenizer, manifest.files, manifest.languages) != manifest.hash:
        raise damage_error(file, "its hash does not match its content")


def check_tokenizer(folder: Path, manifest: DatasetManifest, tokenizer: Tokenizer) -> None:
    """Raise UserError if the tokenizer in the folder is not the one that the manifest names."""
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
    except Exception:  # NumPy evaluates the header as Python, so a damaged one may raise anything
        raise damage_error(file, "it is not a NumPy array") from None
    if counts.dtype != np.int64 or counts.shape != (vocab_size,) or (counts < 0).any():
        raise damage_error(file, f"it is not {vocab_size:,} counts")
    return counts


def check_starts(folder: Path, split: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise UserError if documents or sentences do not cover the split in order."""
    num_tokens = len(arrays["tokens"])
    for name in ("documents", "sentences"):
        starts = arrays[name]
        if len(starts) == 1 and not num_tokens and not starts[0]:
            continue
        if starts[0] != 0 or starts[-1] != num_tokens or (np.diff(starts) < 1).any():
            raise damage_error(folder / shard_name(split, name), "they are not in order")


def check_arrays(
    folder: Path, split: str, arrays: Mapping[str, NDArray[Any]], manifest: DatasetManifest
) -> NDArray[np.int64]:
    """Check all arrays of a split; return the frequency of each token, (V,).

    Errors: UserError for token ids outside the vocabulary, and for documents, sentences, words or
    annotations that contradict the boundaries and the counts.
    """

    def error(array: str, reason: str) -> UserError:
        return damage_error(folder / shard_name(split, array), reason)

    vocab_size, num_tokens = manifest.tokenizer.vocab_size, len(arrays["tokens"])
    token_counts, num_words = np.zeros(vocab_size, np.int64), 0
    for start in range(0, num_tokens, _BLOCK_LENGTH):
        block = slice(start, start + _BLOCK_LENGTH)
        token_ids, boundaries = arrays["tokens"][block], arrays["boundaries"][block]
        if int(token_ids.max()) >= vocab_size:
            raise error("tokens", f"a token id is not below {vocab_size:,}")
        token_counts += np.bincount(token_ids, minlength=vocab_size)
        for array, flag in (("documents", DOCUMENT_START), ("sentences", SENTENCE_START)):
            starts = arrays[array][:-1]
            inside = slice(*np.searchsorted(starts, (start, start + len(token_ids))))
            if not np.array_equal(starts[inside], start + np.flatnonzero(boundaries & flag)):
                raise error(array, "they do not match the boundaries")
        intervals = np.arange(0, len(boundaries), WORD_RANK_INTERVAL)
        words = np.add.reduceat(boundaries & WORD_START, intervals, dtype=np.int64)
        before = num_words + np.cumsum(words) - words
        first = start // WORD_RANK_INTERVAL
        if not np.array_equal(arrays["words_before"][first : first + len(before)], before):
            raise error("words_before", "they do not match the boundaries")
        num_words += int(words.sum())
    if num_words != len(arrays["word_bytes"]):
        raise error("word_bytes", f"the boundaries have {num_words:,} words")
    limits = {"tokens": num_tokens, "languages": len(arrays["documents"]) - 1}
    for spec in manifest.array_specs:
        values = arrays[spec.name]
        if spec.name == "languages":
            is_valid = (values < len(manifest.languages)).all()
        elif spec.name in ("phrase_stops", "entity_stops"):
            starts = arrays[spec.name.replace("stops", "starts")]
            is_valid = (values > starts).all() and (values <= num_tokens).all()
        elif spec.feature is not None and spec.indexes is not None and len(values):
            is_valid = values[0] >= 0 and values[-1] < limits[spec.indexes]
            is_valid &= (np.diff(values) > 0).all()
        else:
            is_valid = True
        if not is_valid:
            raise error(spec.name, "a value lies outside the text")
    return token_counts
