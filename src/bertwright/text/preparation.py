"""From files of text to a data set that training reads.

One process reads documents, drops duplicates and decides the split; workers turn documents into
pieces; the first process writes. Everything streams, so memory does not grow with the text (but for
some 30 bytes a document to know it again), and the order is that of the text whatever the number of
workers.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.machine.cores import num_cores
from bertwright.text.annotations import WordList, pieces_covered
from bertwright.text.data_writing import DataWriter
from bertwright.text.dialogues import joined
from bertwright.text.documents import PHRASE, Document, ReadCounts
from bertwright.text.duplicates import unseen
from bertwright.text.marks import WORD_START, mark_pieces
from bertwright.text.near_duplicates import dissimilar
from bertwright.text.piece_cache import Encoded, PieceCache
from bertwright.text.processes import CHUNK_CHARACTERS, in_order
from bertwright.text.readers import read_documents
from bertwright.text.shard_writing import Beside, Holding, Spoken
from bertwright.text.shards import REPORT, Data
from bertwright.text.sidecars import sidecar_of
from bertwright.text.sources import Source, check_all_speak, find_sources
from bertwright.text.splitting import HELDOUT, TRAIN, assign_splits
from bertwright.text.tagging import Tagger
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
    annotations: str | None = None,
    phrases: str | Path | None = None,
    tagger: str | None = None,
    dialogues: Sequence[str | Path] = (),
    dialogue_column: str = "dialogue",
    capitals: bool = False,
    num_workers: int | None = None,
) -> Data:
    """Make a data set from files, folders and patterns (``-`` is standard input).

    ``en=FILE`` is text in English; ``en,de=FILE,FILE`` are two files of which line n translates
    line n, ``en,de=TABLE`` a table with a column for each side; ``language_column`` holds the
    languages of the texts of tables.

    Phrases and entities are those that the column ``annotations`` of tables states of each text,
    or beside plain text the file ``story.txt.json``; those of ``phrases``, a file of one a line
    (behind a tab the kind of an entity); and those that ``tagger`` finds, a spaCy pipeline.
    ``dialogues`` are inputs of their own: tables with a list of turns in ``dialogue_column``, or
    plain text with a turn on each line. ``capitals`` keeps which words begin with a capital letter,
    for a tokenizer that does not.

    ``heldout`` is the fraction of the text kept from training; ``near_duplicates`` also drops
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
    num_workers = num_workers or num_cores()
    met = ReadCounts()
    sources = find_sources(inputs, column, format, met, language_column)
    if annotations is not None:
        sources = [_annotated(source, annotations) for source in sources]
    if dialogues:
        spoken = find_sources(
            dialogues, dialogue_column, None, met, language_column, remedy="give it one of them"
        )
        sources += [_of_dialogues(source) for source in spoken]
        check_all_speak(sources)
    holding = Holding(
        languages=any(source.speaks for source in sources),
        annotations=any(given is not None for given in (annotations, phrases, tagger)),
        dialogues=bool(dialogues),
        capitals=capitals,
    )
    finders: list[WordList | Tagger] = []
    if phrases is not None:
        finders.append(WordList.read(Path(phrases)))
    if tagger is not None:
        finders.append(Tagger(tagger))
    documents = unseen(read_documents(sources, met), met)
    if near_duplicates:
        documents = dissimilar(documents, met, num_workers)
    chunks = _by_split(assign_splits(documents, heldout))
    names = (TRAIN, HELDOUT) if heldout > 0 else (TRAIN,)
    with atomic_folder(out) as folder, DataWriter(folder, tokenizer, names, holding) as writing:
        settings = (tokenizer, holding, finders)
        for split, encoded, beside in in_order(_Encoder, settings, chunks, num_workers):
            writing.append(split, encoded, beside)
        if not writing.num_pieces:
            raise UserError(f"no text found in {', '.join(map(str, inputs))}")
        report = writing.finish(met.sources) | _what_was_met(met)
        if dialogues and "turns" not in report:
            raise UserError(
                f"no dialogue with two turns found in {', '.join(map(str, dialogues))}: nothing "
                f"can be asked of a single one"
            )
        if heldout:
            achieved = report["splits"][HELDOUT]["pieces"] / report["tokens"]
            report |= {"heldout_asked": heldout, "heldout_achieved": achieved}
        seconds = time.monotonic() - started
        report |= {"seconds": seconds, "megabytes_per_second": report["bytes"] / 1e6 / seconds}
        (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    return Data.open(out)


def _annotated(source: Source, column: str) -> Source:
    if source.beside is not None or len(source.languages) == 2:
        raise UserError(
            f"{source.name} holds translations, in which nothing can be annotated: list the "
            f"phrases in a file with --phrases"
        )
    if source.format == "txt" and not sidecar_of(source.name).exists():
        raise UserError(
            f"{source.name} is plain text, and there is no {sidecar_of(source.name)} that says "
            f"what is known of it: write that, or JSON lines, or list phrases with --phrases"
        )
    return replace(source, annotations=column)


def _of_dialogues(source: Source) -> Source:
    if len(source.languages) == 2:
        raise UserError(f"{source.name}: a dialogue is in one language: write en={source.name}")
    return replace(source, dialogues=True)


class _Encoder:
    """What a worker does: the documents of a chunk to pieces."""

    def __init__(
        self, tokenizer: Tokenizer, holding: Holding, finders: Sequence[WordList | Tagger]
    ) -> None:
        self._tokenizer = tokenizer
        self._cache = PieceCache(tokenizer)
        self._holding = holding
        self._finders = finders

    def __call__(self, chunk: tuple[str, list[Document]]) -> tuple[str, Encoded, Beside]:
        split, documents = chunk
        sides = [side for document in documents for side in document.sides]
        parts = [side.parts for side in sides]
        encoded = self._cache.encode([part for own in parts for part in own])
        turns = None
        if self._holding.dialogues:
            encoded, turns = joined(encoded, sides)
        spoken = None if sides[0].language is None else _spoken(documents, encoded)
        phrases, entities = None, None
        if self._holding.annotations:
            phrases, entities = self._stretches(sides, encoded)
        kept = self._capitals(sides) if self._holding.capitals else None
        return split, encoded, Beside(spoken, phrases, entities, turns, kept)

    def _capitals(self, sides: Sequence[Document]) -> NDArray[np.int64]:
        """The pieces at which words with a capital letter start."""
        found: list[int] = []
        begin = 0
        for part in (part for side in sides for part in side.parts):
            offsets = self._tokenizer.offsets(part)
            marks, _ = mark_pieces(part, offsets)
            found += [
                begin + piece
                for piece, (mark, (start, stop)) in enumerate(zip(marks, offsets, strict=True))
                if mark & WORD_START and part[start:stop].lstrip()[:1].isupper()
            ]
            begin += len(offsets)
        return np.array(found, np.int64)

    def _stretches(
        self, sides: Sequence[Document], encoded: Encoded
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pieces of phrases and of entities."""
        found: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        begins = np.cumsum(encoded.document_lengths) - encoded.document_lengths
        for side, begin in zip(sides, begins.tolist(), strict=True):
            found_here = [each for finder in self._finders for each in finder.find(side.text)]
            known = (*side.annotations, *found_here)
            for each, first, stop in pieces_covered(self._tokenizer, side, known):
                found[each.label == PHRASE].append((begin + first, begin + stop))
        phrases, entities = (np.array(found[n], np.int64).reshape(-1, 2) for n in (True, False))
        return phrases, entities


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
