"""Connectives: words that open a sentence and say how it goes on from the one before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from bertwright.examples.assembly.layout import read
from bertwright.text.marks import DOCUMENT_START, WORD_START

if TYPE_CHECKING:
    from bertwright.text.shards import Split

ENGLISH = (
    *("but", "however,", "nevertheless,", "instead,", "otherwise,", "on the other hand,"),
    *("therefore,", "thus,", "as a result,", "consequently,"),
    *("for example,", "in particular,", "in fact,", "indeed,"),
    *("in addition,", "moreover,", "similarly,"),
    *("then,", "meanwhile,", "finally,"),
)
"""Contrast, result, detail, addition, time. The comma keeps out the same word in another part."""

_BLOCK = 1 << 18


def _told_apart(connectives: tuple[str, ...]) -> tuple[str, ...]:
    folded = [connective.casefold().strip() for connective in connectives]
    for number, name in enumerate(folded):
        if not name or name in folded[:number]:
            raise ValueError(f"names {name!r} twice" if name else "may not be empty")
    return connectives


Connectives = Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(_told_apart)]
"""What may open a sentence, as it is written there, with its comma if it has one."""


@dataclass(frozen=True, slots=True, eq=False)
class Openings:
    """Sentences that begin with a connective and are not the first of their document, in order.

    - ``sentence``: (P,) int64, their numbers in the split
    - ``which``: (P,) int64, the numbers of the connectives
    - ``taken``: (P,) int64, how many pieces each of these is
    """

    sentence: NDArray[np.int64]
    which: NDArray[np.int64]
    taken: NDArray[np.int64]


def openings(split: "Split", connectives: Sequence[str], unknown: int) -> Openings:
    """Find them all, in one pass over the beginnings of sentences.

    A connective is found as it is written and with a capital letter. It must end where a word does
    and be followed by more of its sentence; where several fit, the longest is meant.
    """
    patterns = _patterns(split, connectives, unknown)
    longest = max(map(len, patterns), default=1)
    firsts = np.array([pattern[0] for pattern in patterns], np.int32)
    found: list[NDArray[np.int64]] = [np.empty((3, 0), np.int64)]
    starts = np.asarray(split.sentence_starts, np.int64)
    for block in range(0, len(starts) - 1, _BLOCK):
        begin = starts[block : block + _BLOCK + 1]
        pieces, marks = read(split, begin[:-1], longest + 1)
        may = np.isin(pieces[:, 0], firsts) & (marks[:, 0] & DOCUMENT_START == 0)
        sentence = np.flatnonzero(may)
        pieces, marks = pieces[sentence], marks[sentence]
        sizes = np.diff(begin)[sentence]
        which, taken = np.full(len(sentence), -1), np.zeros(len(sentence), np.int64)
        for pattern in sorted(patterns, key=len):
            size = len(pattern)
            fits = (sizes > size) & (marks[:, size] & WORD_START != 0)
            fits &= (pieces[:, :size] == np.array(pattern)).all(axis=1)
            which[fits], taken[fits] = patterns[pattern], size
        known = which >= 0
        found.append(np.stack([block + sentence[known], which[known], taken[known]]))
    return Openings(*np.concatenate(found, axis=1))


def _patterns(
    split: "Split", connectives: Sequence[str], unknown: int
) -> dict[tuple[int, ...], int]:
    """The pieces of the connectives, however they are written, and which one they are."""
    patterns: dict[tuple[int, ...], int] = {}
    for number, name in enumerate(connectives):
        for written in (name, f"{name[:1].upper()}{name[1:]}"):
            for before in ("", " "):
                pieces = tuple(split.pieces_of(before + written))
                if pieces and unknown not in pieces:
                    patterns.setdefault(pieces, number)
    return patterns
