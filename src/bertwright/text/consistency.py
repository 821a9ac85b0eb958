"""Whether the parts of a data folder say the same: its manifest, its arrays and its tokenizer.

Checksums show that files are as the manifest has them, and whoever changes a manifest can change
those, too. What is checked here follows from the pieces and their marks alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.text.manifest import (
    MANIFEST,
    PIECE_COUNTS,
    RANK_EVERY,
    Counts,
    Manifest,
    content_hash,
    damaged,
    piece_type,
    shard_name,
)
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.splitting import TRAIN
from bertwright.text.tokenizers import FILE as TOKENIZER_FILE
from bertwright.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from bertwright.text.shards import Split

_AT_ONCE = 1 << 22


def check_manifest(file: Path, manifest: Manifest) -> None:
    """Refuse a manifest whose files are not those of its splits, or not as large as its counts."""
    sizes = {
        shard_name(split, array): size
        for split, counts in manifest.splits.items()
        for array, size in _array_bytes(manifest, counts).items()
    }
    names = {*sizes, PIECE_COUNTS, TOKENIZER_FILE}
    if TRAIN not in manifest.splits:
        raise damaged(file, f"it has no split {TRAIN}")
    if odd := sorted(names ^ manifest.files.keys()):
        raise damaged(file, f"its files {'lack' if odd[0] in names else 'hold'} {odd[0]!r}")
    for name, size in sizes.items():
        if size is not None and manifest.files[name].bytes != size:
            raise damaged(file, f"by its counts {name} has {size:,} bytes")
    if content_hash(manifest.tokenizer, manifest.files, manifest.languages) != manifest.hash:
        raise damaged(file, "its hash is that of other content")


def check_tokenizer(folder: Path, manifest: Manifest, tokenizer: Tokenizer) -> None:
    """Refuse a manifest that names another tokenizer than the folder holds."""
    stated = manifest.tokenizer
    known = {"kind": tokenizer.kind, "size": tokenizer.size, "hash": tokenizer.hash}
    for name, value in known.items():
        if getattr(stated, name) != value:
            raise damaged(folder / MANIFEST, f"the tokenizer has another {name}")
    if manifest.piece_type != piece_type(tokenizer.size):
        raise damaged(folder / MANIFEST, f"its pieces are not {piece_type(tokenizer.size)}")


def read_piece_counts(file: Path, size: int) -> NDArray[np.int64]:
    """Return how often each of so many pieces stands in the training split, (V,)."""
    try:
        counts: NDArray[np.int64] = np.load(file, allow_pickle=False)
    except Exception:  # NumPy reads a header as Python, and raises whatever that does
        raise damaged(file, "it is no NumPy array") from None
    if counts.dtype != np.int64 or counts.shape != (size,) or (counts < 0).any():
        raise damaged(file, f"it is not {size:,} counts")
    return counts


def check_starts(folder: Path, split: "Split") -> None:
    """Refuse documents or sentences that do not follow one another from the first piece to the
    last."""
    for name, starts in (
        ("documents", split.document_starts),
        ("sentences", split.sentence_starts),
    ):
        if len(starts) == 1 and not split.num_pieces and not starts[0]:
            continue
        if starts[0] != 0 or starts[-1] != split.num_pieces or (np.diff(starts) < 1).any():
            raise damaged(folder / shard_name(split.name, name), "they do not follow one another")


def check_arrays(folder: Path, split: "Split", tokenizer_size: int) -> NDArray[np.int64]:
    """Return how often each piece stands in a split, (V,), having read all of it.

    Errors: UserError for pieces that the tokenizer does not have, and for documents, sentences,
    words or what stands beside them that are not where the marks and the counts have them.
    """

    def refuse(array: str, why: str) -> UserError:
        return damaged(folder / shard_name(split.name, array), why)

    counts, num_words = np.zeros(tokenizer_size, np.int64), 0
    for start, stop in _stretches(split.num_pieces):
        pieces, marks = split.stored_pieces[start:stop], split.marks(start, stop)
        if int(pieces.max()) >= tokenizer_size:
            raise refuse("pieces", f"a piece is not below {tokenizer_size:,}")
        counts += np.bincount(pieces, minlength=tokenizer_size)
        for array, mark, starts in (
            ("documents", DOCUMENT_START, split.document_starts),
            ("sentences", SENTENCE_START, split.sentence_starts),
        ):
            inside = slice(*np.searchsorted(starts[:-1], (start, stop)))
            if not np.array_equal(starts[inside], start + np.flatnonzero(marks & mark)):
                raise refuse(array, "they do not start where the marks have them")
        blocks = np.arange(0, len(marks), RANK_EVERY)
        words = np.add.reduceat(marks & WORD_START, blocks, dtype=np.int64)
        before = num_words + np.cumsum(words) - words
        first = start // RANK_EVERY
        if not np.array_equal(split.words_before[first : first + len(before)], before):
            raise refuse("words_before", "words are not where the marks have them")
        num_words += int(words.sum())
    if num_words != split.num_words:
        raise refuse("word_bytes", f"the marks have {num_words:,} words")
    _check_beside(folder, split)
    return counts


def _check_beside(folder: Path, split: "Split") -> None:
    """Refuse languages, translations, stretches, turns and capitals that lie nowhere."""

    def require(array: str, right: bool) -> None:
        if not right:
            raise damaged(folder / shard_name(split.name, array), "a value lies outside the text")

    def rises(places: NDArray[np.int64], limit: int) -> bool:
        """Whether places rise, from 0 on, below a limit."""
        inside = not len(places) or (places[0] >= 0 and places[-1] < limit)
        return bool(inside and (np.diff(places) > 0).all())

    if split.languages is not None:
        require("languages", bool((split.languages < len(split.language_names)).all()))
        require("translations", rises(split.translations, split.num_documents))
    for kind, stretches in (("phrase", split.phrases), ("entity", split.entities)):
        if stretches is not None:
            require(f"{kind}_starts", rises(stretches.starts, split.num_pieces))
            ordered = (stretches.stops > stretches.starts).all()
            require(f"{kind}_stops", bool(ordered and (stretches.stops <= split.num_pieces).all()))
    if split.turns is not None:
        require("turn_starts", rises(split.turns.starts, split.num_pieces))
    if split.capitals is not None:
        require("capitals", rises(split.capitals, split.num_pieces))


def _stretches(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + _AT_ONCE, length)) for start in range(0, length, _AT_ONCE))


def _array_bytes(manifest: Manifest, counts: Counts) -> dict[str, int | None]:
    """Return the bytes of each array of a split by its counts; None where they do not say."""
    piece = 2 if manifest.piece_type == "uint16" else 4
    arrays: dict[str, int | None] = {
        "pieces": piece * counts.pieces,
        "marks": counts.pieces,
        "word_bytes": 2 * counts.words,
        "words_before": 8 * -(-counts.pieces // RANK_EVERY),
        "documents": 8 * (counts.documents + 1),
        "sentences": 8 * (counts.sentences + 1),
    }
    if manifest.languages:
        arrays |= {"languages": 2 * counts.documents, "translations": 8 * counts.translations}
    if manifest.annotated:
        arrays |= dict.fromkeys(("phrase_starts", "phrase_stops"), 8 * counts.phrases)
        arrays |= dict.fromkeys(("entity_starts", "entity_stops"), 8 * counts.entities)
    if manifest.dialogues:
        arrays |= {"turn_starts": 8 * counts.turns, "turn_speakers": counts.turns}
    if manifest.capitals:
        arrays["capitals"] = None
    return arrays
