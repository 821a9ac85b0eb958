"""A made-up language."""

import numpy as np

TEXT = """the a old young small great red blue house river mountain farmer teacher horse bird song
walks sings sees builds carries remembers slowly quickly often never under over beside and"""
WORDS = TEXT.split()


def stories(number: int, seed: int = 0) -> list[str]:
    """Documents of made-up sentences; words repeat within a document more than between them."""
    draw = np.random.default_rng(seed)
    texts: list[str] = []
    for _ in range(number):
        favourites = draw.choice(WORDS, 8)
        sentences = [
            " ".join(draw.choice(favourites if draw.random() < 0.7 else WORDS, 9)).capitalize()
            for _ in range(draw.integers(4, 12))
        ]
        texts.append(". ".join(sentences) + ".")
    return texts
