"""A made-up language."""

import numpy as np

TEXT = """the a old young small great red blue house river mountain farmer teacher horse bird song
walks sings sees builds carries remembers slowly quickly often never under over beside and"""
WORDS = TEXT.split()


def stories(number: int, seed: int = 0) -> list[str]:
    """Return documents of made-up sentences; words repeat more within a document."""
    rng = np.random.default_rng(seed)
    texts: list[str] = []
    for _ in range(number):
        favourites = rng.choice(WORDS, 8)
        sentences = [
            " ".join(rng.choice(favourites if rng.random() < 0.7 else WORDS, 9)).capitalize()
            for _ in range(rng.integers(4, 12))
        ]
        texts.append(". ".join(sentences) + ".")
    return texts
