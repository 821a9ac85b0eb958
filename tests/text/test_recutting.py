"""A word in the pieces of another tokenizer is the same word."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_text import STORIES, stories

from bertwright.errors import UserError
from bertwright.text.recutting import CUT_AT_WORDS, Recutting
from bertwright.text.tokenizers import Tokenizer, TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer

SMALLER = {"wordpiece": 150, "byte-bpe": 300}


@pytest.fixture(scope="session")
def smaller() -> dict[str, Tokenizer]:
    return {
        kind: train_tokenizer(stories(50), TokenizerChoice.choose({"kind": kind, "size": size}))
        for kind, size in SMALLER.items()
    }


def words_of(tokenizer: Tokenizer, text: str) -> list[tuple[int, ...]]:
    pieces, starts = tokenizer.encode_words(text)
    return [tuple(pieces[a:b]) for a, b in pairwise([*starts, len(pieces)])]


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
@given(st.lists(st.sampled_from(" ".join(STORIES).split()), max_size=20).map(" ".join))
def test_both_cuts_say_the_same(
    trained: dict[str, Tokenizer], smaller: dict[str, Tokenizer], kind: str, text: str
) -> None:
    own, other = smaller[kind], trained[kind]
    recut = Recutting(own, other)
    found = [(word, recut(word)) for word in words_of(own, text)]
    said = [own.decode(list(word)) for word, cut in found if cut is not None]
    assert [other.decode(list(cut)) for _, cut in found if cut is not None] == said
    if kind == "byte-bpe":
        assert "".join(said) == text or "\ufffd" in own.decode([p for w, _ in found for p in w])
    back = Recutting(other, own)
    for word, cut in found:
        if cut is not None:
            assert own.decode(list(back(cut) or ())) == own.decode(list(word))


@pytest.mark.parametrize("kind", CUT_AT_WORDS)
def test_the_same_tokenizer_cuts_the_same(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    recut = Recutting(tokenizer, tokenizer)
    words = [word for text in stories(5) for word in words_of(tokenizer, text)]
    same = [recut(word) == word for word in words]
    assert sum(same) > 0.9 * len(words)
    assert all(recut(word) in (word, None) for word in words)


def test_a_part_of_a_word_and_what_is_unknown_stay(smaller: dict[str, Tokenizer]) -> None:
    own = smaller["wordpiece"]
    recut = Recutting(own, own)
    word = next(word for word in words_of(own, " ".join(STORIES[:4])) if len(word) > 1)
    assert recut(word) == word
    assert recut(word[1:]) is None
    assert recut((own.specials.unknown,)) is None
    assert recut(()) is None


@pytest.mark.parametrize(
    ("kind", "other", "said"),
    [
        ("wordpiece", "byte-bpe", "two tokenizers of one kind"),
        ("unigram", "unigram", "two tokenizers of one kind"),
        ("wordpiece", "cased", "reads capitals"),
    ],
)
def test_what_cannot_be_cut_twice_is_said(
    trained: dict[str, Tokenizer], kind: str, other: str, said: str
) -> None:
    choice = {"kind": "wordpiece", "size": 200, "lowercase": False}
    cased = train_tokenizer(stories(9), TokenizerChoice.choose(choice))
    with pytest.raises(UserError, match=said):
        Recutting(trained[kind], {**trained, "cased": cased}[other])
