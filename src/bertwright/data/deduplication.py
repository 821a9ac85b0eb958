"""Removal of duplicate and near-duplicate documents."""

import zlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from bertwright.core.parallel import OrderedMap, chunk_texts
from bertwright.core.rng import hash_ngrams, random_bits, stream_key
from bertwright.data.document import Document, ReadCounts, document_fingerprint
from bertwright.data.tokenization.words import split_words


class FingerprintTable:
    """A hash table from a 64-bit fingerprint to the index of the first document that has it.

    Open addressing over two arrays takes 18 to 36 bytes per fingerprint: 300 MB for ten million,
    instead of a gigabyte for a dictionary.
    """

    def __init__(self) -> None:
        self._fingerprints = np.zeros(1 << 10, dtype=np.uint64)  # 0 is an empty slot
        self._indices = np.zeros(1 << 10, dtype=np.uint32)
        self._count = 0

    def first_index(self, fingerprint: int, index: int) -> int:
        """Return the index stored for a fingerprint; if none is, store and return ``index``."""
        fingerprint = fingerprint or 1
        if 3 * self._count >= 2 * len(self._fingerprints):
            self._grow()
        slot = self._slot(fingerprint)
        if self._fingerprints[slot] == 0:
            self._fingerprints[slot] = fingerprint
            self._indices[slot] = index
            self._count += 1
        return int(self._indices[slot])

    def _slot(self, fingerprint: int) -> int:
        """Return the slot of a fingerprint, or the empty slot for it."""
        slots, mask = self._fingerprints, len(self._fingerprints) - 1
        slot = fingerprint & mask
        while (stored := int(slots[slot])) and stored != fingerprint:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        used = self._fingerprints != 0
        fingerprints, indices = self._fingerprints[used], self._indices[used]
        size = 2 * len(self._fingerprints)
        self._fingerprints = np.zeros(size, dtype=np.uint64)
        self._indices = np.zeros(size, dtype=np.uint32)
        mask = np.uint64(size - 1)
        slots = (fingerprints & mask).astype(np.int64)
        while len(fingerprints):
            free = self._fingerprints[slots] == 0
            self._fingerprints[slots[free]] = fingerprints[free]  # the last of several wins
            stored = self._fingerprints[slots] == fingerprints
            self._indices[slots[stored]] = indices[stored]
            fingerprints, indices = fingerprints[~stored], indices[~stored]
            slots = (slots[~stored] + 1) & int(mask)


def drop_duplicates(documents: Iterable[Document], counts: ReadCounts) -> Iterator[Document]:
    """Yield documents that are not exact duplicates of an earlier one; count the others.

    The probability that any of n documents is dropped wrongly is n^2 / 2^65: one in 370,000 for
    ten million documents.
    """
    table = FingerprintTable()
    for index, document in enumerate(documents):
        if table.first_index(document_fingerprint(document), index) == index:
            yield document
        else:
            counts.duplicates += 1


MIN_SIMILARITY = 0.8
"""Minimum Jaccard similarity of near duplicates, estimated from their shingles."""

_SHINGLE_LENGTH = 5
_MAX_WORDS = 1 << 17
_NUM_BANDS, _BAND_LENGTH = 20, 6
_BLOCK_LENGTH = 1 << 9  # shingles at a time, so that arrays stay in the processor's cache

_SHINGLE_KEY, _BAND_KEY = stream_key(0, "runs"), stream_key(0, "bands")

Sketch = NDArray[np.uint32]


def drop_near_duplicates(
    documents: Iterable[Document], counts: ReadCounts, parallel_map: OrderedMap
) -> Iterator[Document]:
    """Yield documents that are not near duplicates of an earlier one; count the others.

    Memory grows by about a kilobyte per document.
    """
    index = MinHashIndex()
    for chunk in parallel_map(MinHasher, (), chunk_texts(documents)):
        for document, sketch in chunk:
            if index.add(sketch):
                yield document
            else:
                counts.near_duplicates += 1


class MinHasher:
    """A function that computes the MinHash sketch of each document, (120,) uint32."""

    def __init__(self) -> None:
        numbers = random_bits(
            stream_key(0, "orders"), np.arange(2 * _NUM_BANDS * _BAND_LENGTH)
        ).astype(np.uint32)
        self._factors, self._offsets = numbers[::2, None] | np.uint32(1), numbers[1::2, None]
        self._word_hashes = _WordHashes()

    def __call__(self, documents: list[Document]) -> list[tuple[Document, Sketch]]:
        if len(self._word_hashes) > _MAX_WORDS:
            self._word_hashes.clear()
        return [(d, self._sketch(self._shingle_hashes(d.full_text))) for d in documents]

    def _shingle_hashes(self, text: str) -> NDArray[np.uint32]:
        """Return a hash of every five consecutive words; a shorter text is one shingle."""
        words = split_words(text.lower())
        hashes = np.fromiter(map(self._word_hashes.__getitem__, words), np.uint64, len(words))
        hashes = np.concatenate(
            [hashes, np.zeros(max(0, _SHINGLE_LENGTH - len(hashes)), dtype=np.uint64)]
        )
        return hash_ngrams(_SHINGLE_KEY, hashes, _SHINGLE_LENGTH).astype(np.uint32)

    def _sketch(self, shingle_hashes: NDArray[np.uint32]) -> Sketch:
        lowest = np.full(len(self._offsets), 0xFFFFFFFF, dtype=np.uint32)
        for start in range(0, len(shingle_hashes), _BLOCK_LENGTH):
            ordered = self._factors * shingle_hashes[start : start + _BLOCK_LENGTH] + self._offsets
            np.minimum(lowest, ordered.min(axis=1), out=lowest)
        return lowest


class MinHashIndex:
    """An index of MinHash sketches by their bands."""

    def __init__(self) -> None:
        self._sketches = np.zeros((1 << 8, _NUM_BANDS * _BAND_LENGTH), dtype=np.uint32)
        self._count = 0
        self._band_table = FingerprintTable()

    def add(self, sketch: Sketch) -> bool:
        """Add a sketch unless a similar one exists; return whether it was added."""
        columns = sketch.reshape(_NUM_BANDS, _BAND_LENGTH).T
        bands = random_bits(_BAND_KEY, np.arange(_NUM_BANDS), *columns).tolist()
        index = self._count
        candidates = {self._band_table.first_index(band, index) for band in bands} - {index}
        equal = self._sketches[list(candidates)] == sketch
        if candidates and equal.mean(axis=1).max() >= MIN_SIMILARITY:
            return False
        if index == len(self._sketches):
            self._sketches = np.concatenate([self._sketches, np.zeros_like(self._sketches)])
        self._sketches[index] = sketch
        self._count += 1
        return True


class _WordHashes(dict[str, int]):
    """A cache of 32-bit hashes of words."""

    def __missing__(self, word: str) -> int:
        hashed = self[word] = zlib.crc32(word.encode())
        return hashed
