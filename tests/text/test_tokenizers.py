"""Tokenizers: special pieces, words, saving and loading."""

import json
from pathlib import Path

import pytest
import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st
from small_text import stories
from tokenizers import models

from bertwright.errors import UserError
from bertwright.text.tokenizers import FILE, Tokenizer, TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer

ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))


def test_special_pieces_have_their_places(trained: dict[str, Tokenizer]) -> None:
    bert, roberta = trained["wordpiece"].specials, trained["byte-bpe"].specials
    assert (bert.pad, bert.unknown, bert.start, bert.end, bert.mask) == (0, 1, 2, 3, 4)
    assert (roberta.start, roberta.pad, roberta.end, roberta.unknown) == (0, 1, 2, 3)
    assert roberta.mask == trained["byte-bpe"].size - 1
    assert roberta.all == {0, 1, 2, 3, roberta.mask}


def test_saving_and_loading_changes_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.hash, again.kind, again.size) == (tokenizer.hash, tokenizer.kind, tokenizer.size)
    assert again.encode(stories(1)[0]) == tokenizer.encode(stories(1)[0])


def test_padding_and_truncation_do_not_change_what_a_tokenizer_is(wordpiece: Tokenizer) -> None:
    foreign = type(wordpiece.backend).from_str(wordpiece.backend.to_str())
    foreign.enable_truncation(8)
    foreign.enable_padding()
    assert Tokenizer(foreign).hash == wordpiece.hash
    assert len(Tokenizer(foreign).encode("one two three " * 10)) > 8


@given(text=ENCODABLE)
def test_bytes_survive(trained: dict[str, Tokenizer], text: str) -> None:
    tokenizer = trained["byte-bpe"]
    if not any(tokenizer.piece(special) in text for special in tokenizer.specials.all):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_batch_is_its_texts(tokenizer: Tokenizer) -> None:
    texts = stories(3)
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_a_mask_takes_the_place_of_a_word_and_of_the_space_before_it(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.encode("the red bird and the ship")
    [place] = [
        n for n in range(1, len(pieces)) if tokenizer.decode(pieces[n : n + 1]).strip() == "the"
    ]
    pieces[place] = tokenizer.specials.mask
    assert tokenizer.encode_hiding("the red bird and [MASK] ship") == pieces
    spelled = tokenizer.piece(tokenizer.specials.mask)
    assert tokenizer.encode_hiding(f"the red bird and {spelled} ship") == pieces


def test_half_a_surrogate_is_read_as_a_replacement(tokenizer: Tokenizer) -> None:
    broken, whole = "good \ud83d film", "good \ufffd film"
    assert tokenizer.encode(broken) == tokenizer.encode(whole)
    assert tokenizer.encode_batch([broken, "x"]) == tokenizer.encode_batch([whole, "x"])


def test_encode_words_finds_the_first_piece_of_every_word(tokenizer: Tokenizer) -> None:
    ids, starts = tokenizer.encode_words("The lighthouse keeper counted.")
    assert ids == tokenizer.encode("The lighthouse keeper counted.")
    assert len(starts) == 5
    assert starts[0] == 0


def test_given_words_have_the_pieces_of_the_text(tokenizer: Tokenizer) -> None:
    words = ["The", "lighthouse", "keeper", "counted", "ships"]
    ids, first = tokenizer.words(words)
    assert ids == tokenizer.encode(" ".join(words))
    assert first == tokenizer.encode_words(" ".join(words))[1]


def test_a_given_word_without_pieces_is_unknown(tokenizer: Tokenizer) -> None:
    _, first = tokenizer.words(["a", "", "b"])
    assert len(first) == 3
    assert first[1] < first[2]


def test_pieces_have_names(tokenizer: Tokenizer) -> None:
    assert tokenizer.id(tokenizer.piece(7)) == 7
    assert tokenizer.id("no such piece") is None
    with pytest.raises(IndexError):
        tokenizer.piece(tokenizer.size)


@pytest.mark.parametrize("settings", [{"kind": "wordpieces"}, {"kind": "unigram", "vocab": 3}])
def test_a_wrong_choice_is_an_error(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"did you mean 'wordpiece'|vocab"):
        TokenizerChoice.choose(settings)


def test_lower_casing_is_a_choice() -> None:
    for kind in ("wordpiece", "unigram"):
        for lowercase in (True, False):
            choice = TokenizerChoice.choose({"kind": kind, "size": 600, "lowercase": lowercase})
            tokenizer = train_tokenizer(stories(20), choice)
            same = tokenizer.encode("The SHIP") == tokenizer.encode("the ship")
            assert same == lowercase


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(UserError, match="is not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_special_pieces_must_be_there(wordpiece: Tokenizer, tmp_path: Path) -> None:
    settings = json.loads(wordpiece.backend.to_str())
    settings["added_tokens"] = []
    del settings["model"]["vocab"]["[MASK]"]
    settings["post_processor"] = None
    (tmp_path / FILE).write_text(json.dumps(settings))
    with pytest.raises(UserError, match=rf"{FILE}: the tokenizer has no piece for mask"):
        Tokenizer.load(tmp_path)


def test_a_tokenizer_that_samples_is_refused(tmp_path: Path) -> None:
    """It would give a text other tokens each time, and data another hash."""
    vocabulary = {piece: n for n, piece in enumerate(["[PAD]", "[UNK]", *"ab", "ab"])}
    for model, reason in (
        (models.BPE(vocabulary, [("a", "b")], dropout=0.25), r"dropout 0\.25"),
        (models.Unigram([("[UNK]", 0.0), ("a", -1.0), ("ab", -1.0)], 0, alpha=0.3), "alpha"),
    ):
        backend = library.Tokenizer(model)
        with pytest.raises(UserError, match=reason):
            Tokenizer(backend, {})
    backend.model = models.BPE(vocabulary, [("a", "b")], dropout=0.25)
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"tokenizer\.json: .*dropout"):
        Tokenizer.load(tmp_path)
