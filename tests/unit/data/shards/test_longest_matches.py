"""Longest matches of texts with a split, against a search of every span."""

from itertools import pairwise

import numpy as np
import pytest

from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Split
from bertwright.data.shards.longest_matches import SuffixArray, longest_matches, sort_suffixes
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer

LETTERS = "abcdefghijk"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """Return documents of random letters."""
    folder = tmp_path_factory.mktemp("letters")
    generator = np.random.default_rng(0)
    documents = [" ".join(generator.choice(list(LETTERS[:4]), 30)) for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    tokenizer = train_tokenizer([" ".join(LETTERS)] * 2, WordLevelConfig(vocab_size=16))
    return prepare(folder / "text.txt", folder / "data", tokenizer=tokenizer).split("train")


def documents(split: Split) -> list[list[int]]:
    starts = split.document_starts.tolist()
    return [split.token_ids(start, stop).tolist() for start, stop in pairwise(starts)]


def contains(document: list[int], span: list[int]) -> bool:
    return any(document[n : n + len(span)] == span for n in range(len(document)))


def longest_by_search(split: Split, text: list[int]) -> list[int]:
    """Return the longest match from every position on, by trying every length."""
    result = []
    for start in range(len(text)):
        lengths = range(len(text) - start, 0, -1)
        matched = (
            n
            for n in lengths
            if any(contains(d, text[start : start + n]) for d in documents(split))
        )
        result.append(next(matched, 0))
    return result


@pytest.mark.parametrize("block_length", [10**6, 64, 7])
def test_matches_are_those_of_a_search(split: Split, block_length: int) -> None:
    of_all = documents(split)
    texts = [
        [5, 6, 7, 8, 5, 6, 7, 8, 8, 8, 8, 8],
        # A whole document, the end of one with the beginning of the next, and an unknown token.
        of_all[3],
        [*of_all[4][-6:], *of_all[5][:6]],
        [*of_all[0][2:10], 1, *of_all[1][3:9]],
        [1],
        [],
    ]
    lengths = longest_matches(split, texts, block_length)
    assert [values.tolist() for values in lengths] == [longest_by_search(split, t) for t in texts]
    assert lengths[1].tolist() == list(range(30, 0, -1))


def test_suffixes_are_in_lexicographic_order() -> None:
    generator = np.random.default_rng(1)
    for depth in (1, 3, 8, 50):
        tokens = generator.integers(0, 3, 50)
        order = sort_suffixes(tokens, depth).tolist()
        assert sorted(order) == list(range(50))
        suffixes = [tokens[n : n + depth].tolist() for n in order]
        assert suffixes == sorted(suffixes)


def test_an_array_of_one_token_matches_only_that_token() -> None:
    assert SuffixArray(np.array([7]), 3).longest_matches([7, 7, 6]).tolist() == [1, 1, 0]
