"""The token cache gives the same tokens as the tokenizer."""

import json
import string

import numpy as np
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers

from bertwright.data.tokenization.boundaries import (
    DOCUMENT_START,
    SENTENCE_START,
    WORD_START,
    token_boundaries,
)
from bertwright.data.tokenization.pretokens import pretoken_pattern
from bertwright.data.tokenization.token_cache import TokenCache
from bertwright.data.tokenization.tokenizer import Tokenizer
from small_text import stories

TEXT_PARTS = [
    *(string.ascii_letters + string.digits + string.punctuation),
    *("\n", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\u3000", " ", "  ", " "),
    *("\u201c", "\u201d", "\u2019", "\u2014", "\u2026", "\u3002", "\uff01", "\u0964"),
    *("\xe9", "e\u0301", "\xdf", "\u0130", "\u226e", "\u0338", "\xb4", "\xb2", "\u2167", "\u2581"),
    *("\u4e2d\u6587", "\ud55c\uae00", "\u0939\u093f", "\U0001f469\u200d\U0001f692", "\ufffd"),
    *(
        "'s",
        "'LL",
        "don't",
        "[MASK]",
        "<mask>",
        "[unk]",
        " <s>",
        "the",
        " lighthouse",
        "a.b",
        "No. 5",
    ),
]
texts = st.lists(st.sampled_from(TEXT_PARTS), max_size=25).map("".join)
anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def encode_by_document(cache: TokenCache, documents: list[str]) -> list[NDArray[np.uint32]]:
    encoded = cache.encode(documents)
    return np.split(encoded.token_ids, np.cumsum(encoded.document_lengths)[:-1])


@settings(max_examples=300)
@given(documents=st.lists(texts | anything, min_size=1, max_size=4))
def test_cached_tokens_equal_the_tokenizer(tokenizer: Tokenizer, documents: list[str]) -> None:
    assert pretoken_pattern(tokenizer.settings) is not None
    for actual, document in zip(
        encode_by_document(TokenCache(tokenizer), documents), documents, strict=True
    ):
        assert actual.tolist() == tokenizer.encode(document)


@settings(max_examples=100)
@given(document=texts)
def test_boundaries_equal_those_of_the_whole_document(tokenizer: Tokenizer, document: str) -> None:
    encoded = TokenCache(tokenizer).encode([document])
    whole = tokenizer.backend.encode(document, add_special_tokens=False)
    boundaries, word_bytes = token_boundaries(document, whole.offsets)
    words = encoded.boundaries & WORD_START
    assert words.tolist() == boundaries
    assert encoded.word_bytes.tolist() == [
        size for size, flags in zip(word_bytes, boundaries, strict=True) if flags
    ]


def test_result_does_not_depend_on_the_cache(tokenizer: Tokenizer) -> None:
    small, fresh = TokenCache(tokenizer, max_pretokens=10), TokenCache(tokenizer)
    for story in stories(30):
        for actual, expected in zip(
            vars(small.encode([story])).values(), vars(fresh.encode([story])).values(), strict=True
        ):
            assert np.array_equal(actual, expected)


def test_full_cache_is_cleared(wordpiece: Tokenizer) -> None:
    cache = TokenCache(wordpiece, max_pretokens=100)
    for number in range(2000):
        cache.encode([f"word{number}"])
        assert len(cache._table.pretoken_ids) <= 101


def test_sentence_and_document_boundaries(tokenizer: Tokenizer) -> None:
    documents = ["The ship. The sea counted.\nThe keeper.", "", "我们。灯塔。 [MASK] The day."]
    encoded = TokenCache(tokenizer).encode(documents)
    assert np.count_nonzero(encoded.boundaries & DOCUMENT_START) == 2
    assert encoded.document_lengths[1] == 0
    starts = np.flatnonzero(encoded.boundaries & SENTENCE_START)
    assert len(starts) == 6
    second = tokenizer.decode(encoded.token_ids[starts[1] : starts[2]].tolist())
    assert second.replace(" ", "").lower() == "theseacounted."


def test_unknown_tokenizer_encodes_whole_documents() -> None:
    backend = library.Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    assert pretoken_pattern(json.loads(backend.to_str())) is None
    cache = TokenCache(Tokenizer(backend))
    encoded = cache.encode(["a b. A", "b"])
    assert encoded.token_ids.tolist() == [1, 2, 0, 0, 2]
    assert encoded.boundaries.tolist() == [7, 1, 1, 3, 7]
