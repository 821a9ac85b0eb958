"""Learning a unigram model of pieces (Kudo 2018), the same in every process.

The library's own trainer walks its words in the order of a hash map that differs from process to
process, so its sums differ in the last digits and its ties fall either way. This one works on
sorted words with numpy: frequent substrings are the first pieces; expectation maximisation over all
ways to cut the words gives their probabilities; the pieces whose loss would cost the text least are
dropped, a quarter at a time, until the wanted number is left. A piece is all punctuation
or has none.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertwright.text.characters import PUNCTUATION

LONGEST_PIECE = 16
LONGEST_RUN = 31
"""What is longer, as lines of a language without spaces are, is learned from in parts."""

MOST_WORDS = 60_000
"""Only so many runs, the most frequent, are learned from."""

_RUN = re.compile(
    rf"\u2581?[{PUNCTUATION}]{{1,{LONGEST_RUN}}}"
    rf"|\u2581?[^\u2581{PUNCTUATION}]{{1,{LONGEST_RUN}}}|\u2581"
)
_SEEDS_PER_PIECE = 5
_KEPT_SHARE = 0.75
_ITERATIONS = 2
_LEAST_SHARE = 1e-8
_DECIMALS = 6

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def learn_pieces(words: Counter[str], size: int) -> list[tuple[str, float]]:
    """At most ``size`` pieces with their log probabilities, the most probable first.

    Every character of the runs that are learned from is among the pieces.
    """
    runs: Counter[str] = Counter()
    for word, count in words.items():
        for run in _RUN.findall(word):
            runs[run] += count
    usable = sorted(runs.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_WORDS]
    counts = np.array([count for _, count in usable], dtype=np.float64)
    pieces, frequency = _seeds(usable, _SEEDS_PER_PIECE * size)
    lattice = _lattice([word for word, _ in usable], pieces)
    alternatives = _without_whole_words(_lattice(pieces, pieces))
    alive = np.arange(len(pieces))
    probability = _shares(frequency)
    while True:
        for _ in range(_ITERATIONS):
            probability = _shares(_expected(lattice, probability, counts))
        if len(alive) <= size:
            break
        score = np.log(probability)
        cost = probability * (score - _best_cut(alternatives, score)[alive])
        wanted = max(size, int(_KEPT_SHARE * len(alive)))
        kept = np.sort(np.lexsort((alive, -cost))[:wanted])
        lattice = _with_pieces(lattice, kept, len(alive))
        alternatives = _with_pieces(alternatives, kept, len(alive))
        alive = alive[kept]
        probability = _shares(probability[kept])
    logarithms = np.log(probability).round(_DECIMALS).tolist()
    scored = [(pieces[number], score) for number, score in zip(alive, logarithms, strict=True)]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


@dataclass(frozen=True)
class _Lattice:
    """All the ways to cut some words into pieces, as edges between the places in the words.

    Places of all words stand in one row; an edge is a piece between two of them. Edges are sorted
    by the length of what stands before them, so that a walk over ``steps`` meets no place too soon.
    """

    begin: Index
    end: Index
    piece: Index
    steps: Index
    word_first: Index
    word_last: Index
    num_places: int


def _seeds(words: list[tuple[str, int]], most: int) -> tuple[list[str], Array]:
    """The characters, and the substrings that cover most text; with how often they stand there."""
    frequency: Counter[str] = Counter()
    for word, count in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + LONGEST_PIECE) + 1):
                frequency[word[begin:end]] += count
    characters = sorted(piece for piece in frequency if len(piece) == 1)
    longer = [piece for piece, count in frequency.items() if len(piece) > 1 and count > 1]
    longer.sort(key=lambda piece: (-len(piece) * frequency[piece], piece))
    pieces = characters + longer[: max(0, most - len(characters))]
    return pieces, np.array([frequency[piece] for piece in pieces], dtype=np.float64)


def _lattice(words: list[str], pieces: list[str]) -> _Lattice:
    number = {piece: i for i, piece in enumerate(pieces)}
    before: list[int] = []
    lengths: list[int] = []
    places: list[int] = []
    used: list[int] = []
    firsts, place = [0], 0
    for word in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + LONGEST_PIECE) + 1):
                piece = number.get(word[begin:end])
                if piece is not None:
                    before.append(begin)
                    lengths.append(end - begin)
                    places.append(place + begin)
                    used.append(piece)
        place += len(word) + 1
        firsts.append(place)
    order = np.argsort(before, kind="stable")
    begins = np.array(places, dtype=np.int64)[order]
    bounds = np.array(firsts, dtype=np.int64)
    return _Lattice(
        begin=begins,
        end=begins + np.array(lengths, dtype=np.int64)[order],
        piece=np.array(used, dtype=np.int64)[order],
        steps=np.searchsorted(np.array(before)[order], np.arange(LONGEST_RUN + 2)),
        word_first=bounds[:-1],
        word_last=bounds[1:] - 1,
        num_places=place,
    )


def _with_pieces(lattice: _Lattice, kept: Index, num_pieces: int) -> _Lattice:
    """The lattice of some of its pieces, numbered anew."""
    new = np.full(num_pieces, -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))
    renumbered = replace(lattice, piece=new[lattice.piece])
    return _with_edges(renumbered, renumbered.piece >= 0)


def _without_whole_words(lattice: _Lattice) -> _Lattice:
    """The lattice without the edges that are whole words."""
    word = np.searchsorted(lattice.word_last, lattice.begin)
    length = lattice.word_last - lattice.word_first
    return _with_edges(lattice, lattice.end - lattice.begin < length[word])


def _with_edges(lattice: _Lattice, stays: NDArray[np.bool_]) -> _Lattice:
    before = np.concatenate(([0], np.cumsum(stays)))
    return replace(
        lattice,
        begin=lattice.begin[stays],
        end=lattice.end[stays],
        piece=lattice.piece[stays],
        steps=before[lattice.steps],
    )


def _expected(lattice: _Lattice, probability: Array, counts: Array) -> Array:
    """How often each piece is expected to be used, over all cuts of all words."""
    # Words are short, so products of probabilities stay far from the end of float64.
    weight = probability[lattice.piece]
    before, after = np.zeros(lattice.num_places), np.zeros(lattice.num_places)
    before[lattice.word_first], after[lattice.word_last] = 1.0, 1.0
    walk = _walk(lattice)
    for edges in walk:
        reached = before[lattice.begin[edges]] * weight[edges]
        np.add.at(before, lattice.end[edges], reached)
    for edges in reversed(walk):
        reached = after[lattice.end[edges]] * weight[edges]
        np.add.at(after, lattice.begin[edges], reached)
    share = counts / before[lattice.word_last]
    of_word = np.repeat(share, lattice.word_last - lattice.word_first + 1)
    used = before[lattice.begin] * weight * after[lattice.end] * of_word[lattice.begin]
    return np.bincount(lattice.piece, used, minlength=len(probability)).astype(np.float64)


def _shares(expected: Array) -> Array:
    """Expected uses as probabilities, none of them zero."""
    shares = np.maximum(expected / expected.sum(), _LEAST_SHARE)
    return shares / shares.sum()


def _best_cut(lattice: _Lattice, score: Array) -> Array:
    """The score of the best cut of every word; minus infinity where there is none."""
    best = np.full(lattice.num_places, -np.inf)
    best[lattice.word_first] = 0.0
    for edges in _walk(lattice):
        reached = best[lattice.begin[edges]] + score[lattice.piece[edges]]
        np.maximum.at(best, lattice.end[edges], reached)
    return best[lattice.word_last]


def _walk(lattice: _Lattice) -> list[slice]:
    return [slice(a, b) for a, b in pairwise(lattice.steps.tolist())]
