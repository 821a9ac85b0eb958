"""A tokenizer of a stranger is refused in one sentence, at once, where it cannot be read."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library

from bertwright.errors import TokenizerFailure, UserError
from bertwright.text.piece_cache import PieceCache
from bertwright.text.tokenizers import ABOUT, FILE, Tokenizer

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
    "long content": (replacing("b" * 5_000), "makes more than 1,000 characters of one"),
    "doubled": (replacing("aa", times=30), "makes more than 1,000 characters of one"),
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
        "it cannot read a text .*: mend its tokenizer.json",
    ),
    "charsmap": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        "is not a tokenizer|cannot read",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_refused_at_once(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, message = WRONG[case]
    (tmp_path / FILE).write_text(json.dumps(settings(**changes)))
    began = time.process_time()
    with pytest.raises(UserError, match=message) as refused:
        Tokenizer.load(tmp_path).encode("a b")
    assert time.process_time() - began < 2
    assert "\n" not in str(refused.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("content", ["", "[]", "3", "{", "[" * 100_000, '{"a": ' * 100_000])
def test_a_file_that_is_no_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"roles": 3}', '{"roles": {"pad": 3}}', '"x"'])
def test_roles_that_are_none_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(settings()))
    Tokenizer.load(tmp_path)
    (tmp_path / ABOUT).write_text(content)
    with pytest.raises(UserError, match=r"tokenizer_kind\.json"):
        Tokenizer.load(tmp_path)


def test_a_panic_on_one_text_is_one_sentence_and_others_are_read() -> None:
    changed = settings(**split_at("((ab)+(ab)+)+$"))
    tokenizer = Tokenizer(library.Tokenizer.from_str(json.dumps(changed)))
    text = "ab" * 40 + "c"
    for read in (
        tokenizer.encode,
        tokenizer.offsets,
        tokenizer.encode_words,
        lambda text: tokenizer.encode_batch([text]),
        lambda text: tokenizer.encode_spans([text]),
        lambda text: PieceCache(tokenizer).encode([text]),
    ):
        with pytest.raises(TokenizerFailure, match="the tokenizer cannot read a text"):
            read(text)
    assert tokenizer.encode("a") == [5]


def test_a_word_that_is_missing_is_one_sentence() -> None:
    vocabulary = {word: n for n, word in enumerate(WORDS)}
    backend = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token="none"))
    with pytest.raises(TokenizerFailure, match="Missing"):
        Tokenizer(backend).encode("z")


def test_text_that_looks_like_large_ids_is_read(tmp_path: Path) -> None:
    vocabulary = {**settings()["model"]["vocab"], "123456789": 7, ": 123456789,": 8}
    changed = settings(model={**settings()["model"], "vocab": vocabulary})
    (tmp_path / FILE).write_text(json.dumps(changed))
    assert Tokenizer.load(tmp_path).encode("123456789") == [7]
