"""Unusable tokenizers raise one sentence, quickly."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library

from bertwright.core.errors import TokenizerError, UserError
from bertwright.data.tokenization.token_cache import TokenCache
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, TOKENIZER_INFO_FILE, Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]


def settings(**changes: Any) -> dict[str, Any]:
    model = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(WORDS)}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {**model, "unk_token": "[UNK]"},
        **changes,
    }


def split_at(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return {"pre_tokenizer": {**split, "invert": False}}


def replacing(content: str, times: int = 1) -> dict[str, Any]:
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": content}
    return {"normalizer": {"type": "Sequence", "normalizers": [replace] * times}}


def with_id(number: Any) -> dict[str, Any]:
    return {
        "model": {**settings()["model"], "vocab": {**settings()["model"]["vocab"], "c": number}}
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nested repetitions": (split_at("(a+)+$"), "a regular expression takes too long"),
    "choices": (split_at("(?:a|aa)+$"), "a regular expression takes too long"),
    "twice": (split_at("(x+x+)+y"), "a regular expression takes too long"),
    "other letters": (split_at("(q+)+$"), "a regular expression takes too long"),
    "unclosed": (split_at("((("), "is not a tokenizer"),
    "long content": (replacing("b" * 5_000), "replaces one character with more than 1,000"),
    "doubled": (replacing("aa", times=30), "replaces one character with more than 1,000"),
    "id": (with_id(10**9), "has the id 1000000000, and ids lie between 0 and 16,777,216"),
    "id of 32 bits": (with_id(2**32 - 1), "has the id 4294967295"),
    "id of 64 bits": (with_id(10**30), "has the id 1000000"),
    "negative": (with_id(-1), "is not a tokenizer"),
    "text as id": (with_id("5"), "is not a tokenizer"),
    "model": ({"model": {"type": "Mine"}}, "is not a tokenizer"),
    "no model": ({"model": None}, "is not a tokenizer"),
    "template": (
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "B", "type_id": 0}}],
                "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
                "special_tokens": {},
            }
        },
        "it cannot encode a text .*: fix its tokenizer.json",
    ),
    "charsmap": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "is not a tokenizer|cannot encode",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_unusable_tokenizer_raises_quickly(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, message = WRONG[case]
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(settings(**changes)))
    start = time.process_time()
    with pytest.raises(UserError, match=message) as raised:
        Tokenizer.load(tmp_path).encode("a b")
    assert time.process_time() - start < 2
    assert "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", ["", "[]", "3", "{", "[" * 100_000, '{"a": ' * 100_000])
def test_invalid_tokenizer_file_raises(content: str, tmp_path: Path) -> None:
    (tmp_path / TOKENIZER_FILE).write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"roles": 3}', '{"roles": {"pad": 3}}', '"x"'])
def test_invalid_roles_raise(content: str, tmp_path: Path) -> None:
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(settings()))
    Tokenizer.load(tmp_path)
    (tmp_path / TOKENIZER_INFO_FILE).write_text(content)
    with pytest.raises(UserError, match=r"tokenizer_kind\.json"):
        Tokenizer.load(tmp_path)


def test_panic_raises_one_sentence() -> None:
    changed = settings(**split_at("((ab)+(ab)+)+$"))
    tokenizer = Tokenizer(library.Tokenizer.from_str(json.dumps(changed)))
    text = "ab" * 40 + "c"
    for read in (
        tokenizer.encode,
        tokenizer.encode_with_offsets,
        tokenizer.encode_with_word_starts,
        lambda text: tokenizer.encode_batch([text]),
        lambda text: TokenCache(tokenizer).encode([text]),
    ):
        with pytest.raises(TokenizerError, match="the tokenizer cannot encode a text"):
            read(text)
    assert tokenizer.encode("a") == [5]


def test_missing_unknown_token_raises_one_sentence() -> None:
    vocabulary = {word: n for n, word in enumerate(WORDS)}
    backend = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token="none"))
    with pytest.raises(TokenizerError, match="Missing"):
        Tokenizer(backend).encode("z")


def test_large_numbers_as_tokens(tmp_path: Path) -> None:
    vocabulary = {**settings()["model"]["vocab"], "123456789": 7, ": 123456789,": 8}
    changed = settings(model={**settings()["model"], "vocab": vocabulary})
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(changed))
    assert Tokenizer.load(tmp_path).encode("123456789") == [7]
