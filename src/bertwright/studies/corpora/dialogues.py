"""Dialogues about the facts of a world: two people ask and reply in turn."""

from collections.abc import Iterator, Sequence

import numpy as np

from bertwright.core.rng import generator, stream_key
from bertwright.studies.corpora.stories import Word, World, format_sentence

ROUNDS = (2, 5)


def generate_dialogues(world: World, seed: int, num_dialogues: int) -> Iterator[list[str]]:
    """Yield dialogues, each a list of alternating turns."""
    for number in range(num_dialogues):
        rng = generator(stream_key(seed, "talks"), number)
        turns: list[str] = []
        for _ in range(int(rng.integers(*ROUNDS))):
            fact = world.fact(rng)
            turns += [_query_turn(fact), _reply_turn(fact, rng)]
        yield turns


def _query_turn(fact: Sequence[Word]) -> str:
    """Return a fact without its last word, as a question."""
    return f"{format_sentence(fact[:-1]).removesuffix('.')} what?"


def _reply_turn(fact: Sequence[Word], rng: np.random.Generator) -> str:
    return format_sentence(fact if rng.random() < 0.5 else ["it", "is", fact[-1]])
