"""Pretokens: parts of a text that can be tokenized separately without changing the result.

The splits are safe because

- WordPiece and word-level models after BERT's normaliser and pre-tokenizer treat ASCII white space
  and ASCII punctuation independently of the context;
- in byte-BPE with GPT-2's pattern, no match continues from a visible character to white space, nor
  from an ASCII letter or digit to ASCII punctuation, nor (except the apostrophe) back;
- Unigram models with collapsed white space encode each word separately.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from bertwright.data.tokenization.characters import ASCII_PUNCTUATION, WHITE_SPACE


def pretoken_pattern(settings: Mapping[str, Any]) -> re.Pattern[str] | None:
    """Return the pretoken pattern of a tokenizer; None if no split is known to be safe.

    White space before a pretoken belongs to it, or is skipped if white space has no tokens.
    """
    normalizer = settings["normalizer"]
    if normalizer and any(token["normalized"] for token in settings["added_tokens"]):
        return None  # added tokens are matched in the normalised text, not in this one
    signature = (
        _component_signature(normalizer),
        _component_signature(settings["pre_tokenizer"]),
        settings["model"]["type"],
    )
    return _PATTERNS.get(signature)


def is_single_word(pretoken: str) -> bool:
    """Return whether a pretoken is ASCII letters or digits, after at most one space."""
    word = pretoken.removeprefix(" ")
    return pretoken.isascii() and (word.isalpha() or word.isdigit())


def _component_signature(component: dict[str, Any] | None) -> str:
    """Return the type of a tokenizer component with the settings that affect splits."""
    if not component:
        return ""
    if component["type"] == "Sequence":
        return " ".join(
            map(_component_signature, component.get("normalizers") or component["pretokenizers"])
        )
    settings = {name: value for name, value in component.items() if name in _SPLIT_SETTINGS}
    return f"{component['type']}{json.dumps(settings)}" if settings else component["type"]


_SPLIT_SETTINGS = ("add_prefix_space", "use_regex", "prepend_scheme", "split", "pattern", "content")

_BERT_PRETOKEN = re.compile(rf"[^ \t\n\r{ASCII_PUNCTUATION}]++|[{ASCII_PUNCTUATION}]")
_PUNCTUATION_BUT_APOSTROPHE = ASCII_PUNCTUATION.replace("!-/", "!-&(-/")
_BYTE_BPE_PRETOKEN = re.compile(
    r" ?+[A-Za-z0-9]++(?![^\0-\x7f])"
    rf"| ?+[{_PUNCTUATION_BUT_APOSTROPHE}]++(?=[A-Za-z0-9 ]|\Z)"
    rf"|[{WHITE_SPACE}]*+[^{WHITE_SPACE}]++|[{WHITE_SPACE}]++"
)
_UNIGRAM_PRETOKEN = re.compile(r"[^ \n]++")

_GPT_2 = 'ByteLevel{"add_prefix_space": false, "use_regex": true}'
_COLLAPSE_WHITE_SPACE = r'Replace{"pattern": {"Regex": "\\s+"}, "content": " "} Strip'
_METASPACE = 'Metaspace{"prepend_scheme": "always", "split": true}'

_PATTERNS: dict[tuple[str, str, str], re.Pattern[str]] = {
    ("BertNormalizer", "BertPreTokenizer", "WordPiece"): _BERT_PRETOKEN,
    ("BertNormalizer", "BertPreTokenizer", "WordLevel"): _BERT_PRETOKEN,
    ("", _GPT_2, "BPE"): _BYTE_BPE_PRETOKEN,
    (f"NFKC {_COLLAPSE_WHITE_SPACE}", _METASPACE, "Unigram"): _UNIGRAM_PRETOKEN,
    (f"NFKC Lowercase {_COLLAPSE_WHITE_SPACE}", _METASPACE, "Unigram"): _UNIGRAM_PRETOKEN,
}
"""Patterns by normaliser, pre-tokenizer and model."""
