"""Texts as an analysis reads them: pieces, the word of each, and what kind of place it is.

Analyses never guess from pieces what a place is: it is said here, once.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.subject import Subject
from bertwright.errors import UserError
from bertwright.examples.assembly.pair_layout import longest_first
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.formats.lines import read_lines, suffix_of
from bertwright.tasks.formats.treebank import Tree, read_trees

Mark = Literal["opening", "separator", "punctuation", "first"]
"""Kinds of places: the special piece that opens a row; those that end a text; full stops and commas
(Clark et al. 2019); the first piece of a word."""

MARKS: tuple[Mark, ...] = get_args(Mark)

PUNCTUATION = (".", ",")

Text = Example | TaggedWords | Tree


@dataclass(frozen=True)
class ReadText:
    """One row.

    Attributes:
        pieces: (T,) ids, special ones included.
        parts: (T,) which of a pair each place belongs to.
        segmented: whether the encoder is told so.
        word: (T,) the word that each piece is part of, -1 for special ones.
        words: as they are given, or else as their pieces spell them.
        written: each text of it as it is written, as far as it is read.
        marks: (T,) bool for each kind of place.
        source: what it was read from.
    """

    pieces: list[int]
    parts: list[int]
    segmented: bool
    word: NDArray[np.int64]
    words: tuple[str, ...]
    written: tuple[str, ...]
    marks: dict[Mark, NDArray[np.bool_]]
    source: Text

    def __len__(self) -> int:
        return len(self.pieces)


def read_file(path: Path) -> list[Text]:
    """Trees of a CoNLL-U file, or texts: one on each line, a pair with a tab between.

    Errors: UserError, naming file and line, for what cannot be read; for a file without texts.
    """
    if suffix_of(path) == ".conllu":
        return [*read_trees(path)]
    found = _examples((f"{path} line {number}", line) for number, line in read_lines(path))
    if not found:
        raise UserError(f"{path} holds no texts")
    return found


def read_given(lines: Sequence[str]) -> list[Text]:
    """Texts as they are typed, a pair with a tab between.

    Errors: UserError for one that is empty.
    """
    if not all(line.strip() for line in lines):
        raise UserError("a text is empty: type some words")
    return _examples(("", line) for line in lines)


def _examples(lines: Iterable[tuple[str, str]]) -> list[Text]:
    """Of where each line stands and the line itself; empty ones are passed by."""
    found: list[Text] = []
    for where, line in lines:
        first, _, second = line.partition("\t")
        if first.strip():
            found.append(Example(first, second or None, where=where))
    return found


def read_texts(subject: Subject, texts: Sequence[Text], length: int = 128) -> list[ReadText]:
    """The rows of texts and of pairs; what is longer than ``length`` places is cut as it is in
    fine-tuning, and a word of which a piece is cut away is left out."""
    recipe, longest = subject.text_model.model.recipe, subject.encoder.longest
    maker = RowMaker.of(recipe, subject.tokenizer, longest, min(length, longest or length))
    return [_read(subject, maker, text) for text in texts]


def worded(subject: Subject, texts: Sequence[Text], length: int = 128) -> list[ReadText]:
    """The same of those texts that have a word to be read; a control character alone is none, nor
    is a word that is longer than a row.

    Errors: UserError where none has.
    """
    found = [text for text in read_texts(subject, texts, length) if text.words]
    if not found:
        raise UserError(f"no text has a word that {subject.name} reads in {length} places")
    return found


def is_told_apart(text: ReadText) -> bool:
    """Whether it has pieces enough for one to be hidden and others to be held against each
    other."""
    return int((text.word >= 0).sum()) > 2


def lacks_longer(texts: Sequence[ReadText]) -> str | None:
    """Why no text can be asked what of it an answer comes from, in words."""
    return None if any(map(is_told_apart, texts)) else "it needs a text of three pieces or more"


def lacks_halves(texts: Sequence[ReadText], what: str = "learn from") -> str | None:
    """Why there are too few texts for two halves, in words."""
    return None if len(texts) >= 4 else f"it needs four texts: two to {what}, two to judge"


def lacks_trees(texts: Sequence[ReadText]) -> str | None:
    """Why nothing can be asked of trees, in words."""
    if all(isinstance(text.source, Tree) for text in texts):
        return None
    return "it needs sentences with their trees: give a CoNLL-U file"


def incomparable(subject: Subject, other: Subject, texts: Sequence[ReadText]) -> str | None:
    """Why what two models do with the texts cannot be laid beside each other, in words."""
    for text in texts:
        words = list(text.words)
        if other.tokenizer.words(words) != subject.tokenizer.words(words):
            return (
                f"{other.name} reads texts as other pieces than {subject.name}: compare models "
                f"with one vocabulary"
            )
    if subject.layer_heads != other.layer_heads:
        return (
            f"{other.name} has {other.size}, {subject.name} {subject.size}: compare models of one "
            f"size"
        )
    return None


def digest(texts: Sequence[ReadText]) -> str:
    """Of all that an analysis can read of the texts: their rows, and what they were read from, with
    its trees, tags and labels."""
    found = hashlib.sha256()
    for text in texts:
        # What marks a place follows from its piece and word; where a source stands changes nothing.
        source = {name: own for name, own in vars(text.source).items() if name != "where"}
        rows = [text.pieces, text.parts, text.segmented, text.word.tolist(), text.words]
        found.update(json.dumps([*rows, type(text.source).__name__, source]).encode() + b"\n")
    return found.hexdigest()[:16]


def _read(subject: Subject, maker: RowMaker, text: Text) -> ReadText:
    sources = _parts(text)
    parts = [_words(subject, part) for part in sources]
    room = maker.length - 2 - maker.separators * (len(parts) - 1)
    read = [_fitting(own, most) for own, most in zip(parts, _rooms(parts, room), strict=True)]
    pieces, told = maker.joined([[i for _, ids in own for i in ids] for own in read])
    word, words, place = np.full(len(pieces), -1), list[str](), 1
    for own in read:
        for spelled, ids in own:
            word[place : place + len(ids)] = len(words)
            words.append(spelled)
            place += len(ids)
        place += maker.separators
    written = tuple(
        source if own == whole and isinstance(source, str) else _written(subject, source, own)
        for source, whole, own in zip(sources, parts, read, strict=True)
    )
    marks = _marks(word, words)
    return ReadText(pieces, told, maker.segmented, word, tuple(words), written, marks, text)


def _parts(text: Text) -> list[str | tuple[str, ...]]:
    if isinstance(text, TaggedWords | Tree):
        return [text.words]
    return [text.first] if text.second is None else [text.first, text.second]


def _words(subject: Subject, part: str | tuple[str, ...]) -> list[tuple[str, list[int]]]:
    """The words of a text, and the pieces of each."""
    tokenizer = subject.tokenizer
    if isinstance(part, str):
        ids, starts = tokenizer.encode_words(part)
        starts = [0, *starts[1:]] if ids else []
        cut = [ids[begin:end] for begin, end in pairwise([*starts, len(ids)])]
        return [(tokenizer.decode(own).strip(), own) for own in cut]
    ids, starts = tokenizer.words(list(part))
    bounds = pairwise([*starts, len(ids)])
    return [(word, ids[begin:end]) for word, (begin, end) in zip(part, bounds, strict=True)]


def _written(
    subject: Subject, part: str | tuple[str, ...], read: list[tuple[str, list[int]]]
) -> str:
    """A text as far as these words of it."""
    if not isinstance(part, str):
        return " ".join(part[: len(read)])
    _, spans = subject.tokenizer.encode_spans([part])[0]
    number = sum(len(ids) for _, ids in read)
    return part[: spans[number - 1][1]] if number else ""


def _rooms(parts: Sequence[list[tuple[str, list[int]]]], room: int) -> Sequence[int]:
    """Places for the pieces of each text; a pair is cut where fine-tuning cuts it."""
    if len(parts) == 1:
        return [room]
    first, second = (sum(len(ids) for _, ids in own) for own in parts)
    return [int(most) for most in longest_first(first, second, room)]


def _fitting(words: list[tuple[str, list[int]]], room: int) -> list[tuple[str, list[int]]]:
    taken: list[tuple[str, list[int]]] = []
    for spelled, ids in words:
        room -= len(ids)
        if room < 0:
            break
        taken.append((spelled, ids))
    return taken


def _marks(word: NDArray[np.int64], words: Sequence[str]) -> dict[Mark, NDArray[np.bool_]]:
    is_punctuation = np.array([*(own in PUNCTUATION for own in words), False])
    opening = np.arange(len(word)) == 0
    return {
        "opening": opening,
        "separator": (word < 0) & ~opening,
        "punctuation": is_punctuation[word],
        "first": (word >= 0) & (word != np.concatenate([[-1], word[:-1]])),
    }
