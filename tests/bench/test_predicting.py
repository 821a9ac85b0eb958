"""Short texts to be answered: a few words each, the same for whoever asks."""

from bertwright.bench.predicting import WORDS, compare, short_texts

LINES = [" ".join(f"word{n * 7 + m}" for m in range(30)) for n in range(20)]


def test_texts_are_short_and_the_same_twice() -> None:
    texts = short_texts(LINES, 500)
    assert texts == short_texts(LINES, 500)
    fewest, most = WORDS
    assert {len(text.split()) for text in texts} == set(range(fewest, most + 1))


def test_both_sides_are_measured() -> None:
    found = compare(LINES, 100, 1, lambda line: None)
    assert found["texts"] == 100
    assert found["share"] > 0
