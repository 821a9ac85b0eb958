"""Tokenizers: special tokens, words, saving and loading."""

import json
from pathlib import Path

import pytest
import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer, TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from small_text import stories

ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))


def test_special_token_ids(trained: dict[str, Tokenizer]) -> None:
    bert, roberta = trained["wordpiece"].special_tokens, trained["byte-bpe"].special_tokens
    assert (bert.pad, bert.unknown, bert.start, bert.end, bert.mask) == (0, 1, 2, 3, 4)
    assert (roberta.start, roberta.pad, roberta.end, roberta.unknown) == (0, 1, 2, 3)
    assert roberta.mask == trained["byte-bpe"].vocab_size - 1
    assert roberta.all == {0, 1, 2, 3, roberta.mask}


def test_save_and_load(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.hash, again.kind, again.vocab_size) == (
        tokenizer.hash,
        tokenizer.kind,
        tokenizer.vocab_size,
    )
    assert again.encode(stories(1)[0]) == tokenizer.encode(stories(1)[0])


def test_padding_and_truncation_are_ignored(wordpiece: Tokenizer) -> None:
    foreign = type(wordpiece.backend).from_str(wordpiece.backend.to_str())
    foreign.enable_truncation(8)
    foreign.enable_padding()
    assert Tokenizer(foreign).hash == wordpiece.hash
    assert len(Tokenizer(foreign).encode("one two three " * 10)) > 8


@given(text=ENCODABLE)
def test_byte_bpe_round_trip(trained: dict[str, Tokenizer], text: str) -> None:
    tokenizer = trained["byte-bpe"]
    if not any(tokenizer.id_to_token(special) in text for special in tokenizer.special_tokens.all):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_encode_batch(tokenizer: Tokenizer) -> None:
    texts = stories(3)
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_encode_with_masks(tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode("the red bird and the ship")
    [index] = [
        n
        for n in range(1, len(token_ids))
        if tokenizer.decode(token_ids[n : n + 1]).strip() == "the"
    ]
    token_ids[index] = tokenizer.special_tokens.mask
    assert tokenizer.encode_with_masks("the red bird and [MASK] ship") == token_ids
    mask_token = tokenizer.id_to_token(tokenizer.special_tokens.mask)
    assert tokenizer.encode_with_masks(f"the red bird and {mask_token} ship") == token_ids


def test_lone_surrogate_becomes_a_replacement_character(tokenizer: Tokenizer) -> None:
    broken, replaced = "good \ud83d film", "good \ufffd film"
    assert tokenizer.encode(broken) == tokenizer.encode(replaced)
    assert tokenizer.encode_batch([broken, "x"]) == tokenizer.encode_batch([replaced, "x"])


def test_encode_with_word_starts(tokenizer: Tokenizer) -> None:
    ids, starts = tokenizer.encode_with_word_starts("The lighthouse keeper counted.")
    assert ids == tokenizer.encode("The lighthouse keeper counted.")
    assert len(starts) == 5
    assert starts[0] == 0


def test_encode_pretokenized(tokenizer: Tokenizer) -> None:
    words = ["The", "lighthouse", "keeper", "counted", "ships"]
    ids, first = tokenizer.encode_pretokenized(words)
    assert ids == tokenizer.encode(" ".join(words))
    assert first == tokenizer.encode_with_word_starts(" ".join(words))[1]


def test_word_without_tokens_is_unknown(tokenizer: Tokenizer) -> None:
    _, first = tokenizer.encode_pretokenized(["a", "", "b"])
    assert len(first) == 3
    assert first[1] < first[2]


def test_token_names(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_to_id(tokenizer.id_to_token(7)) == 7
    assert tokenizer.token_to_id("no such token") is None
    with pytest.raises(IndexError):
        tokenizer.id_to_token(tokenizer.vocab_size)


@pytest.mark.parametrize("settings", [{"kind": "wordpieces"}, {"kind": "unigram", "vocab": 3}])
def test_invalid_config_raises(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"did you mean 'wordpiece'|vocab"):
        TokenizerConfig.parse(settings)


def test_lowercase_option() -> None:
    for kind in ("wordpiece", "unigram"):
        for lowercase in (True, False):
            config = TokenizerConfig.parse(
                {"kind": kind, "vocab_size": 600, "lowercase": lowercase}
            )
            tokenizer = train_tokenizer(stories(20), config)
            is_equal = tokenizer.encode("The SHIP") == tokenizer.encode("the ship")
            assert is_equal == lowercase


def test_missing_and_damaged_files_raise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no folder .*missing"):
        Tokenizer.load(tmp_path / "missing")
    with pytest.raises(UserError, match=r"holds no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / TOKENIZER_FILE).write_text("{}")
    with pytest.raises(UserError, match="is not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_missing_special_token_raises(wordpiece: Tokenizer, tmp_path: Path) -> None:
    settings = json.loads(wordpiece.backend.to_str())
    settings["added_tokens"] = []
    del settings["model"]["vocab"]["[MASK]"]
    settings["post_processor"] = None
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(settings))
    with pytest.raises(UserError, match=rf"{TOKENIZER_FILE}: the tokenizer has no token for mask"):
        Tokenizer.load(tmp_path)


def test_sampling_tokenizer_raises(tmp_path: Path) -> None:
    """Its tokens would vary, and so would the hash of data."""
    vocabulary = {token: n for n, token in enumerate(["[PAD]", "[UNK]", *"ab", "ab"])}
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
