"""Words keep their text in the tokens of another tokenizer."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.data.tokenization.retokenization import WORD_BOUNDED_KINDS, WordRetokenizer
from bertwright.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from small_text import STORIES, stories

SMALLER = {"wordpiece": 150, "byte-bpe": 300}


@pytest.fixture(scope="session")
def smaller() -> dict[str, Tokenizer]:
    return {
        kind: train_tokenizer(
            stories(50), TokenizerConfig.parse({"kind": kind, "vocab_size": size})
        )
        for kind, size in SMALLER.items()
    }


def words_of(tokenizer: Tokenizer, text: str) -> list[tuple[int, ...]]:
    token_ids, starts = tokenizer.encode_with_word_starts(text)
    return [tuple(token_ids[a:b]) for a, b in pairwise([*starts, len(token_ids)])]


@pytest.mark.parametrize("kind", WORD_BOUNDED_KINDS)
@given(st.lists(st.sampled_from(" ".join(STORIES).split()), max_size=20).map(" ".join))
def test_retokenized_words_decode_to_the_same_text(
    trained: dict[str, Tokenizer], smaller: dict[str, Tokenizer], kind: str, text: str
) -> None:
    source, target = smaller[kind], trained[kind]
    retokenize = WordRetokenizer(source, target)
    results = [(word, retokenize(word)) for word in words_of(source, text)]
    decoded = [source.decode(list(word)) for word, tokens in results if tokens is not None]
    assert [target.decode(list(tokens)) for _, tokens in results if tokens is not None] == decoded
    if kind == "byte-bpe":
        assert "".join(decoded) == text or "\ufffd" in source.decode(
            [p for w, _ in results for p in w]
        )
    back = WordRetokenizer(target, source)
    for word, tokens in results:
        if tokens is not None:
            assert source.decode(list(back(tokens) or ())) == source.decode(list(word))


@pytest.mark.parametrize("kind", WORD_BOUNDED_KINDS)
def test_retokenization_by_the_same_tokenizer(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    retokenize = WordRetokenizer(tokenizer, tokenizer)
    words = [word for text in stories(5) for word in words_of(tokenizer, text)]
    is_same = [retokenize(word) == word for word in words]
    assert sum(is_same) > 0.9 * len(words)
    assert all(retokenize(word) in (word, None) for word in words)


def test_partial_and_unknown_words_return_none(smaller: dict[str, Tokenizer]) -> None:
    source = smaller["wordpiece"]
    retokenize = WordRetokenizer(source, source)
    word = next(word for word in words_of(source, " ".join(STORIES[:4])) if len(word) > 1)
    assert retokenize(word) == word
    assert retokenize(word[1:]) is None
    assert retokenize((source.special_tokens.unknown,)) is None
    assert retokenize(()) is None


@pytest.mark.parametrize(
    ("kind", "target", "decoded"),
    [
        ("wordpiece", "byte-bpe", "of the same kind"),
        ("unigram", "unigram", "of the same kind"),
        ("wordpiece", "cased", "one of the two tokenizers lower-cases"),
    ],
)
def test_incompatible_tokenizers_raise(
    trained: dict[str, Tokenizer], kind: str, target: str, decoded: str
) -> None:
    config = {"kind": "wordpiece", "vocab_size": 200, "lowercase": False}
    cased = train_tokenizer(stories(9), TokenizerConfig.parse(config))
    with pytest.raises(UserError, match=decoded):
        WordRetokenizer(trained[kind], {**trained, "cased": cased}[target])
