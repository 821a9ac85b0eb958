"""The table in front of the tokenizer says what the tokenizer says."""

import string

import numpy as np
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_text import stories
from tokenizers import models, pre_tokenizers

from bertwright.text.keys import key_pattern
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START, mark_pieces
from bertwright.text.piece_cache import PieceCache
from bertwright.text.tokenizers import Tokenizer

PIECES_OF_TEXT = [
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
texts = st.lists(st.sampled_from(PIECES_OF_TEXT), max_size=25).map("".join)
anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def by_document(cache: PieceCache, documents: list[str]) -> list[NDArray[np.uint32]]:
    encoded = cache.encode(documents)
    return np.split(encoded.pieces, np.cumsum(encoded.document_lengths)[:-1])


@settings(max_examples=300)
@given(documents=st.lists(texts | anything, min_size=1, max_size=4))
def test_pieces_equal_the_tokenizers(tokenizer: Tokenizer, documents: list[str]) -> None:
    assert key_pattern(tokenizer.backend.to_str()) is not None
    for found, document in zip(
        by_document(PieceCache(tokenizer), documents), documents, strict=True
    ):
        assert found.tolist() == tokenizer.encode(document)


@settings(max_examples=100)
@given(document=texts)
def test_marks_equal_those_of_the_whole_document(tokenizer: Tokenizer, document: str) -> None:
    encoded = PieceCache(tokenizer).encode([document])
    whole = tokenizer.backend.encode(document, add_special_tokens=False)
    marks, word_bytes = mark_pieces(document, whole.offsets)
    words = encoded.marks & WORD_START
    assert words.tolist() == marks
    assert encoded.word_bytes.tolist() == [
        size for size, mark in zip(word_bytes, marks, strict=True) if mark
    ]


def test_the_same_whatever_was_encoded_before(tokenizer: Tokenizer) -> None:
    small, fresh = PieceCache(tokenizer, max_keys=10), PieceCache(tokenizer)
    for story in stories(30):
        for found, expected in zip(
            vars(small.encode([story])).values(), vars(fresh.encode([story])).values(), strict=True
        ):
            assert np.array_equal(found, expected)


def test_the_table_is_emptied_when_full(wordpiece: Tokenizer) -> None:
    cache = PieceCache(wordpiece, max_keys=100)
    for number in range(2000):
        cache.encode([f"word{number}"])
        assert len(cache._table.numbers) <= 101


def test_sentences_and_documents_are_marked(tokenizer: Tokenizer) -> None:
    documents = ["The ship. The sea counted.\nThe keeper.", "", "我们。灯塔。 [MASK] The day."]
    encoded = PieceCache(tokenizer).encode(documents)
    assert np.count_nonzero(encoded.marks & DOCUMENT_START) == 2
    assert encoded.document_lengths[1] == 0
    starts = np.flatnonzero(encoded.marks & SENTENCE_START)
    assert len(starts) == 6
    second = tokenizer.decode(encoded.pieces[starts[1] : starts[2]].tolist())
    assert second.replace(" ", "").lower() == "theseacounted."


def test_a_tokenizer_of_another_make_gets_whole_documents() -> None:
    backend = library.Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    assert key_pattern(backend.to_str()) is None
    cache = PieceCache(Tokenizer(backend))
    encoded = cache.encode(["a b. A", "b"])
    assert encoded.pieces.tolist() == [1, 2, 0, 0, 2]
    assert encoded.marks.tolist() == [7, 1, 1, 3, 7]
