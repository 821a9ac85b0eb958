"""From files of text to a data set that training reads.

One process reads documents, drops duplicates and decides the split; workers turn documents into
pieces; the first process writes. Everything streams, so memory does not grow with the text (but for
some 30 bytes a document to know it again), and the order is that of the text whatever the number of
workers.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.text.data_writing import DataWriter
from bertwright.text.documents import Document, ReadCounts
from bertwright.text.duplicates import unseen
from bertwright.text.near_duplicates import dissimilar
from bertwright.text.piece_cache import Encoded, PieceCache
from bertwright.text.processes import CHUNK_CHARACTERS, available_processors, in_order
from bertwright.text.readers import read_documents
from bertwright.text.shard_writing import Spoken
from bertwright.text.shards import REPORT, Data
from bertwright.text.sources import find_sources
from bertwright.text.splitting import HELDOUT, TRAIN, assign_splits
from bertwright.text.tokenizers import Tokenizer


def prepare(
    inputs: Sequence[str | Path] | str | Path,
    out: str | Path,
    tokenizer: Tokenizer | str | Path,
    *,
    heldout: float = 0.05,
    near_duplicates: bool = False,
    column: str = "text",
    format: str | None = None,
    language_column: str | None = None,
    num_workers: int | None = None,
) -> Data:
    """Make a data set from files, folders and patterns (``-`` is standard input).

    ``en=FILE`` is text in English; ``en,de=FILE,FILE`` are two files of which line n translates
    line n, ``en,de=TABLE`` a table with a column for each side; ``language_column`` holds the
    languages of the texts of tables.

    ``heldout`` is the share of documents kept from training; ``near_duplicates`` also drops
    documents much like an earlier one; ``column`` holds the text of tables; ``format`` overrides
    what file names say. The folder appears whole or not at all.

    Errors: UserError for inputs that are not there, not text or empty, for translations that do
    not match, for a full disk, and where ``out`` already holds something.
    """
    started = time.monotonic()
    out = Path(out)
    require_free(out)
    if not 0.0 <= heldout < 1.0:
        raise UserError(f"the held-out share must be at least 0 and less than 1, not {heldout}")
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer.load(tokenizer)
    inputs = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    num_workers = num_workers or available_processors()
    met = ReadCounts()
    sources = find_sources(inputs, column, format, met, language_column)
    speaks = any(source.speaks for source in sources)
    documents = unseen(read_documents(sources, met), met)
    if near_duplicates:
        documents = dissimilar(documents, met, num_workers)
    chunks = _by_split(assign_splits(documents, heldout))
    names = (TRAIN, HELDOUT) if heldout > 0 else (TRAIN,)
    with atomic_folder(out) as folder, DataWriter(folder, tokenizer, names, speaks) as writing:
        for split, encoded, spoken in in_order(_Encoder, (tokenizer,), chunks, num_workers):
            writing.append(split, encoded, spoken)
        if not writing.num_pieces:
            raise UserError(f"no text found in {', '.join(map(str, inputs))}")
        report = writing.finish(met.sources) | _what_was_met(met)
        seconds = time.monotonic() - started
        report |= {"seconds": seconds, "megabytes_per_second": report["bytes"] / 1e6 / seconds}
        (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    return Data.open(out)


class _Encoder:
    """What a worker does: the documents of a chunk to pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._cache = PieceCache(tokenizer)

    def __call__(self, chunk: tuple[str, list[Document]]) -> tuple[str, Encoded, Spoken | None]:
        split, documents = chunk
        sides = [side for document in documents for side in document.sides]
        encoded = self._cache.encode([side.text for side in sides])
        spoken = None if sides[0].language is None else _spoken(documents, encoded)
        return split, encoded, spoken


def _spoken(documents: Sequence[Document], encoded: Encoded) -> Spoken:
    """The languages of documents; of a pair of which one side has no pieces the other stays."""
    there = encoded.document_lengths > 0
    sides = [side for document in documents for side in document.sides]
    translates = np.array([n > 0 for document in documents for n in range(len(document.sides))])
    translates[1:] &= there[:-1]
    codes = [str(side.language) for side, is_there in zip(sides, there, strict=True) if is_there]
    return Spoken(codes, np.flatnonzero(translates[there]))


def _by_split(documents: Iterable[tuple[str, Document]]) -> Iterator[tuple[str, list[Document]]]:
    """Documents in chunks of one split each."""
    waiting: dict[str, list[Document]] = {TRAIN: [], HELDOUT: []}
    sizes = dict.fromkeys(waiting, 0)
    for split, document in documents:
        waiting[split].append(document)
        sizes[split] += len(document)
        if sizes[split] >= CHUNK_CHARACTERS:
            yield split, waiting[split]
            waiting[split], sizes[split] = [], 0
    yield from ((split, left) for split, left in waiting.items() if left)


def _what_was_met(met: ReadCounts) -> dict[str, Any]:
    return {name: value for name, value in asdict(met).items() if name != "sources"}
