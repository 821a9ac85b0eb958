"""Deterministic training of a unigram language model tokenizer (Kudo 2018).

The library's trainer visits words in the order of a hash map, which differs between processes, so
its sums and ties vary. This trainer works on sorted words with NumPy. Frequent substrings are the
seed tokens, and expectation maximisation over all segmentations gives their probabilities. Then the
quarter of tokens whose removal costs the least likelihood is dropped, again and again, down to the
vocabulary size. No token mixes punctuation with other characters.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bertwright.data.tokenization.characters import PUNCTUATION

MAX_TOKEN_LENGTH = 16
MAX_RUN_LENGTH = 31
"""Maximum length of a run; longer ones, as in languages without spaces, are split."""

MAX_RUNS = 60_000
"""Maximum number of runs; those that cover the most text are used."""

_RUN = re.compile(
    rf"\u2581?[{PUNCTUATION}]{{1,{MAX_RUN_LENGTH}}}"
    rf"|\u2581?[^\u2581{PUNCTUATION}]{{1,{MAX_RUN_LENGTH}}}|\u2581"
)
_SEEDS_PER_TOKEN = 5
_KEEP_FRACTION = 0.75
_ITERATIONS = 2
_MIN_PROBABILITY = 1e-8
_DECIMALS = 6

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]


def learn_unigram_tokens(word_counts: Counter[str], vocab_size: int) -> list[tuple[str, float]]:
    """Return at most ``vocab_size`` tokens with log probabilities, the most probable first.

    Every character is a token.
    """
    runs: Counter[str] = Counter()
    for word, count in word_counts.items():
        for run in _RUN.findall(word):
            runs[run] += count
    characters: Counter[str] = Counter()
    for run, count in runs.items():
        for character in run:
            characters[character] += count
    usable = _runs_with_most_text(runs)
    counts = np.array([count for _, count in usable], dtype=np.float64)
    tokens, frequency = _seed_tokens(usable, characters, _SEEDS_PER_TOKEN * vocab_size)
    lattice = _build_lattice([word for word, _ in usable], tokens)
    alternatives = _drop_whole_words(_build_lattice(tokens, tokens))
    alive = np.arange(len(tokens))
    probability = _normalise(frequency)
    while True:
        for _ in range(_ITERATIONS):
            probability = _normalise(_expected_counts(lattice, probability, counts))
        if len(alive) <= vocab_size:
            break
        score = np.log(probability)
        cost = probability * (score - _best_segmentation(alternatives, score)[alive])
        num_kept = max(vocab_size, int(_KEEP_FRACTION * len(alive)))
        kept = np.sort(np.lexsort((alive, -cost))[:num_kept])
        lattice = _restrict_tokens(lattice, kept, len(alive))
        alternatives = _restrict_tokens(alternatives, kept, len(alive))
        alive = alive[kept]
        probability = _normalise(probability[kept])
    logarithms = np.log(probability).round(_DECIMALS).tolist()
    scored = [(tokens[index], score) for index, score in zip(alive, logarithms, strict=True)]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


def _runs_with_most_text(runs: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the runs that cover the most text, the most frequent first.

    Of runs that cover as much a random sample is taken, by a hash: text without spaces consists of
    runs that occur once, and in the order of characters some scripts would have none.
    """
    by_text = sorted(
        runs.items(), key=lambda pair: (-pair[1] * len(pair[0]), crc32(pair[0].encode()), pair[0])
    )
    return sorted(by_text[:MAX_RUNS], key=lambda pair: (-pair[1], pair[0]))


def is_uniform_run(token: str) -> bool:
    """Return whether a token is not too long, and mixes no punctuation with other characters."""
    return _RUN.fullmatch(token) is not None


@dataclass(frozen=True)
class _Lattice:
    """A graph of all segmentations of words, with tokens as edges between positions.

    The positions of all words are numbered consecutively. Edges are sorted by their offset in the
    word, so ``steps`` visits positions in order.
    """

    begin: IndexArray
    end: IndexArray
    token: IndexArray
    steps: IndexArray
    word_first: IndexArray
    word_last: IndexArray
    num_positions: int


def _seed_tokens(
    words: list[tuple[str, int]], characters: Counter[str], max_tokens: int
) -> tuple[list[str], FloatArray]:
    """Return all characters and the substrings that cover the most text, with their frequencies."""
    frequency: Counter[str] = Counter()
    for word, count in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + MAX_TOKEN_LENGTH) + 1):
                frequency[word[begin:end]] += count
    frequency |= characters
    longer = [token for token, count in frequency.items() if len(token) > 1 and count > 1]
    longer.sort(key=lambda token: (-len(token) * frequency[token], token))
    tokens = sorted(characters) + longer[: max(0, max_tokens - len(characters))]
    return tokens, np.array([frequency[token] for token in tokens], dtype=np.float64)


def _build_lattice(words: list[str], tokens: list[str]) -> _Lattice:
    token_ids = {token: index for index, token in enumerate(tokens)}
    offsets: list[int] = []
    lengths: list[int] = []
    positions: list[int] = []
    edge_tokens: list[int] = []
    word_starts, word_start = [0], 0
    for word in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + MAX_TOKEN_LENGTH) + 1):
                token_id = token_ids.get(word[begin:end])
                if token_id is not None:
                    offsets.append(begin)
                    lengths.append(end - begin)
                    positions.append(word_start + begin)
                    edge_tokens.append(token_id)
        word_start += len(word) + 1
        word_starts.append(word_start)
    order = np.argsort(offsets, kind="stable")
    begins = np.array(positions, dtype=np.int64)[order]
    bounds = np.array(word_starts, dtype=np.int64)
    return _Lattice(
        begin=begins,
        end=begins + np.array(lengths, dtype=np.int64)[order],
        token=np.array(edge_tokens, dtype=np.int64)[order],
        steps=np.searchsorted(np.array(offsets)[order], np.arange(MAX_RUN_LENGTH + 2)),
        word_first=bounds[:-1],
        word_last=bounds[1:] - 1,
        num_positions=word_start,
    )


def _restrict_tokens(lattice: _Lattice, token_ids: IndexArray, num_tokens: int) -> _Lattice:
    """Return the lattice restricted to some tokens, which get new ids."""
    new_ids = np.full(num_tokens, -1, dtype=np.int64)
    new_ids[token_ids] = np.arange(len(token_ids))
    renumbered = replace(lattice, token=new_ids[lattice.token])
    return _filter_edges(renumbered, renumbered.token >= 0)


def _drop_whole_words(lattice: _Lattice) -> _Lattice:
    """Return the lattice without edges that cover a whole word."""
    word = np.searchsorted(lattice.word_last, lattice.begin)
    length = lattice.word_last - lattice.word_first
    return _filter_edges(lattice, lattice.end - lattice.begin < length[word])


def _filter_edges(lattice: _Lattice, mask: NDArray[np.bool_]) -> _Lattice:
    before = np.concatenate(([0], np.cumsum(mask)))
    return replace(
        lattice,
        begin=lattice.begin[mask],
        end=lattice.end[mask],
        token=lattice.token[mask],
        steps=before[lattice.steps],
    )


def _expected_counts(lattice: _Lattice, probability: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the expected count of each token over all segmentations of all words."""
    # Words are short, so products of probabilities do not underflow in float64.
    weight = probability[lattice.token]
    before, after = np.zeros(lattice.num_positions), np.zeros(lattice.num_positions)
    before[lattice.word_first], after[lattice.word_last] = 1.0, 1.0
    walk = _edge_slices(lattice)
    for edges in walk:
        reached = before[lattice.begin[edges]] * weight[edges]
        np.add.at(before, lattice.end[edges], reached)
    for edges in reversed(walk):
        reached = after[lattice.end[edges]] * weight[edges]
        np.add.at(after, lattice.begin[edges], reached)
    scale = counts / before[lattice.word_last]
    position_scale = np.repeat(scale, lattice.word_last - lattice.word_first + 1)
    expected = before[lattice.begin] * weight * after[lattice.end] * position_scale[lattice.begin]
    return np.bincount(lattice.token, expected, minlength=len(probability)).astype(np.float64)


def _normalise(expected_counts: FloatArray) -> FloatArray:
    """Return expected counts as probabilities, none of them zero."""
    probabilities = np.maximum(expected_counts / expected_counts.sum(), _MIN_PROBABILITY)
    return probabilities / probabilities.sum()


def _best_segmentation(lattice: _Lattice, log_probability: FloatArray) -> FloatArray:
    """Return the score of the best segmentation of every word; -inf if there is none."""
    best = np.full(lattice.num_positions, -np.inf)
    best[lattice.word_first] = 0.0
    for edges in _edge_slices(lattice):
        reached = best[lattice.begin[edges]] + log_probability[lattice.token[edges]]
        np.maximum.at(best, lattice.end[edges], reached)
    return best[lattice.word_last]


def _edge_slices(lattice: _Lattice) -> list[slice]:
    return [slice(a, b) for a, b in pairwise(lattice.steps.tolist())]
