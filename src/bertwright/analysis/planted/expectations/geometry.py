"""Clouds, cones, and vectors that know no context."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bertwright.analysis.analysis import Case
from bertwright.analysis.geometry.contextuality import (
    Contextuality,
    in_one_direction,
    unit,
    with_itself,
    with_random,
    without_largest,
)
from bertwright.analysis.geometry.senses import WordSenses, nearest_alike
from bertwright.analysis.geometry.sentence_vectors import found_again
from bertwright.analysis.geometry.two_senses import SENTENCES as TWO_SENSES
from bertwright.analysis.planted.expecting import Expected, above, below, equal
from bertwright.analysis.planted.models import WORDS, small_case, small_subject
from bertwright.analysis.word_states import WordStates


def contextuality() -> Iterator[Expected]:
    """The cosines of a cloud and of a cone, and of a cone without its axis; a word on a line; one
    word is one vector before the blocks."""
    for offset in (0.0, 8.0):
        own = _cloud(offset)
        parts, wholes = with_random(unit(own.states[0]), own, 0)
        same, _ = with_itself(unit(own.states[0]), own, 5, 0)
        wanted = offset**2 / (offset**2 + 64)
        yield equal("of random words", parts.sum() / wholes.sum(), wanted, 0.02)
        yield equal("of one word", same.mean(), wanted, 0.02)
        parts, wholes = with_random(unit(without_largest(own.states[0])), own, 0)
        yield equal("without the largest dimensions", parts.sum() / wholes.sum(), 0, 0.02)
        spread, _ = in_one_direction(own.states[0], own, 5, 0)
        yield equal("of a word's spread in one direction, less others'", spread.mean(), 0, 0.01)
    own = _cloud(0.0)
    first = np.array(own.words) == own.words[0]
    line = np.where(first[:, None], np.linspace(-1, 1, len(first))[:, None], own.states[0])
    spread, _ = in_one_direction(line, own, 5, 0)
    yield above("of a word on a line", spread[0], 0.9)
    drawn = [np.random.default_rng(n).permutation(WORDS[:10])[:7] for n in range(12)]
    texts = [" ".join(words) for words in drawn]
    case = small_case("bert", "encoder.positions={kind: none}", texts=texts)
    same = Contextuality().run(case).arrays["one word"]
    yield equal("of one word before the blocks", same[0], 1)
    yield below("of one word behind them", same[-1], 0.9999)


def senses() -> Iterator[Expected]:
    """Occurrences of one sense are found by what is apart, and by no more than chance where nothing
    is."""
    kinds = np.repeat([0, 1], 6)
    apart = np.zeros((12, 4))
    apart[np.arange(12), kinds] = 1
    yield equal("senses that are apart", nearest_alike(apart, kinds), 1)
    yield equal("senses that are not", nearest_alike(np.ones((12, 4)) / 2, kinds), 5 / 11)
    said = [word for own in TWO_SENSES.values() for s in own for text in s for word in text.split()]
    subject = small_subject("bert", "encoder.positions.kind=none", words=tuple(dict.fromkeys(said)))
    right = WordSenses().run(Case(subject, [])).arrays["right"]
    yield equal("before the blocks", right[:, 0], 5 / 11)


def sentence_vectors() -> Iterator[Expected]:
    """A vector finds its like, however long, and by chance where all are alike."""
    drawn = np.random.default_rng(0).normal(0, 1, (20, 16))
    yield equal("the same, longer", found_again(drawn, 3 * drawn), 1)
    yield equal("all alike", found_again(np.ones((5, 4)), np.ones((5, 4))), 1 / 5)
    yield above("noise", found_again(drawn, drawn + 1e-3).mean(), 0.99)


def _cloud(offset: float, words: int = 4000, width: int = 64) -> WordStates:
    """Of normal vectors, all of them moved by so much along one direction."""
    generator = np.random.default_rng(0)
    states = generator.normal(0, 1, (1, words, width)).astype(np.float32)
    states[..., 0] += offset
    own = WordStates(states, np.repeat(np.arange(words // 10), 10), ())
    return replace(own, words=tuple(str(n % 50) for n in range(words)))
