"""Words that no language has: made of syllables, all different, the same for the same seed."""

from collections.abc import Iterator

from bertwright.randomness import generator, key

ONSETS = (*"bdfgklmnprstvz", "br", "dr", "gr", "kl", "pl", "tr")
VOWELS = (*"aeiou", "ai", "or", "en", "il")


def new_words(seed: int, purpose: str, taken: set[str], syllables: int = 2) -> Iterator[str]:
    """Words without end, none of them among those ``taken``, which they join."""
    draw = generator(key(seed, "lexicon", purpose))
    while True:
        parts = [
            ONSETS[int(draw.integers(len(ONSETS)))] + VOWELS[int(draw.integers(len(VOWELS)))]
            for _ in range(syllables)
        ]
        word = "".join(parts)
        if word not in taken:
            taken.add(word)
            yield word
