"""Dialogues about the facts of a world: somebody asks, somebody else answers, and asks back."""

from collections.abc import Iterator, Sequence

import numpy as np

from bertwright.randomness import generator, key
from bertwright.studies.corpora.stories import Word, World, sentence

ROUNDS = (2, 5)


def talks(world: World, seed: int, count: int) -> Iterator[list[str]]:
    """So many dialogues, each a list of turns of two who alternate."""
    for number in range(count):
        draw = generator(key(seed, "talks"), number)
        turns: list[str] = []
        for _ in range(int(draw.integers(*ROUNDS))):
            fact = world.fact(draw)
            turns += [_asked(fact), _answered(fact, draw)]
        yield turns


def _asked(fact: Sequence[Word]) -> str:
    """The fact without its end."""
    return f"{sentence(fact[:-1]).removesuffix('.')} what?"


def _answered(fact: Sequence[Word], draw: np.random.Generator) -> str:
    return sentence(fact if draw.random() < 0.5 else ["it", "is", fact[-1]])
