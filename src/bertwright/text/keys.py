"""Where a text may be cut so that the parts have the pieces of the whole.

A part that is given to the tokenizer alone is called a key. The cuts are safe because

- WordPiece, and a list of words, behind BERT's normaliser and splitter treat ASCII white space and
  ASCII punctuation on their own, whatever stands beside them;
- byte-BPE behind GPT-2's pattern: no match of the pattern goes from a character that is not white
  space on to one that is, nor from an ASCII letter or digit on to ASCII punctuation, nor (but for
  the apostrophe) back;
- Unigram with its white space collapsed sees a list of words.
"""

import json
import re
from typing import Any

from bertwright.text.characters import ASCII_PUNCTUATION, WHITE_SPACE


def key_pattern(settings: str) -> re.Pattern[str] | None:
    """What finds the keys of a text for a tokenizer (in JSON); None where no cut is known safe.

    White space before a key may be part of it, or lie between keys where it has no pieces.
    """
    tokenizer = json.loads(settings)
    normalizer = tokenizer["normalizer"]
    if normalizer and any(token["normalized"] for token in tokenizer["added_tokens"]):
        return None  # special pieces would be looked for in a text that is not the one we see
    make = (_make(normalizer), _make(tokenizer["pre_tokenizer"]), tokenizer["model"]["type"])
    return _PATTERNS.get(make)


def is_one_word(key: str) -> bool:
    """Whether a key is one word for every tokenizer: ASCII letters, or digits, after one space."""
    word = key.removeprefix(" ")
    return key.isascii() and (word.isalpha() or word.isdigit())


def _make(part: dict[str, Any] | None) -> str:
    """What a part of a tokenizer does, as far as it decides about cuts."""
    if not part:
        return ""
    if part["type"] == "Sequence":
        return " ".join(map(_make, part.get("normalizers") or part["pretokenizers"]))
    deciding = {name: value for name, value in part.items() if name in _DECIDING}
    return f"{part['type']}{json.dumps(deciding)}" if deciding else part["type"]


_DECIDING = ("add_prefix_space", "use_regex", "prepend_scheme", "split", "pattern", "content")

_BERT_KEY = re.compile(rf"[^ \t\n\r{ASCII_PUNCTUATION}]++|[{ASCII_PUNCTUATION}]")
_PUNCTUATION_BUT_APOSTROPHE = ASCII_PUNCTUATION.replace("!-/", "!-&(-/")
_BYTE_BPE_KEY = re.compile(
    r" ?+[A-Za-z0-9]++(?![^\0-\x7f])"
    rf"| ?+[{_PUNCTUATION_BUT_APOSTROPHE}]++(?=[A-Za-z0-9 ]|\Z)"
    rf"|[{WHITE_SPACE}]*+[^{WHITE_SPACE}]++|[{WHITE_SPACE}]++"
)
_UNIGRAM_KEY = re.compile(r"[^ \n]++")

_GPT_2 = 'ByteLevel{"add_prefix_space": false, "use_regex": true}'
_COLLAPSE = r'Replace{"pattern": {"Regex": "\\s+"}, "content": " "} Strip'
_METASPACE = 'Metaspace{"prepend_scheme": "always", "split": true}'

_PATTERNS: dict[tuple[str, str, str], re.Pattern[str]] = {
    ("BertNormalizer", "BertPreTokenizer", "WordPiece"): _BERT_KEY,
    ("BertNormalizer", "BertPreTokenizer", "WordLevel"): _BERT_KEY,
    ("", _GPT_2, "BPE"): _BYTE_BPE_KEY,
    (f"NFKC {_COLLAPSE}", _METASPACE, "Unigram"): _UNIGRAM_KEY,
    (f"NFKC Lowercase {_COLLAPSE}", _METASPACE, "Unigram"): _UNIGRAM_KEY,
}
"""Patterns by normaliser, splitter and model."""
