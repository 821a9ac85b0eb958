"""Tokenizers of llama.cpp: WordPiece with BERT's rules, and byte-level BPE with GPT-2's."""

from dataclasses import dataclass
from typing import Any

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
"""Token types of llama.cpp."""

WORD_START = "\u2581"
"""What llama.cpp writes before the first token of a word, in place of ## before the others."""

CONTINUATION = "##"

LONGEST_WORD = 100
"""A longer word is unknown to BERT's tokenizer, and llama.cpp splits it."""


@dataclass(frozen=True)
class LlamaTokenizer:
    """The tokens of a GGUF file, in the order of ids, and its further keys."""

    model: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    metadata: dict[str, Any]


def llama_tokenizer(tokenizer: Tokenizer, num_embeddings: int) -> LlamaTokenizer:
    """Return a tokenizer in the form of llama.cpp, with a token for every row of the embedding.

    Raises UserError for a tokenizer that llama.cpp would not reproduce.
    """
    settings, ids = tokenizer.settings, tokenizer.special_tokens
    added = {token["id"]: token["special"] for token in settings["added_tokens"]}
    types = [UNUSED] * num_embeddings
    tokens = [f"[unused token {index}]" for index in range(num_embeddings)]
    for index in tokenizer.ids.tolist():
        tokens[index] = tokenizer.id_to_token(index)
        types[index] = NORMAL
        if index in added or index in ids.all:
            types[index] = CONTROL if index in ids.all or added[index] else USER_DEFINED
    metadata: dict[str, Any] = {
        "bos_token_id": ids.start,
        "eos_token_id": ids.end,
        "unknown_token_id": ids.unknown,
        "seperator_token_id": ids.end,
        "padding_token_id": ids.pad,
        "cls_token_id": ids.start,
        "mask_token_id": ids.mask,
        "add_bos_token": True,
        "add_eos_token": True,
        "add_sep_token": True,
        "pre": "gpt-2",
    }
    if tokenizer.kind == "byte-bpe":
        _require_gpt2_rules(settings)
        merges = [m if isinstance(m, str) else " ".join(m) for m in settings["model"]["merges"]]
        return LlamaTokenizer("gpt2", tokens, types, merges, metadata)
    if tokenizer.kind != "wordpiece":
        raise UserError(
            f"text.tokenizer.kind is {tokenizer.kind} (llama.cpp reproduces wordpiece and "
            f"byte-bpe): export to onnx instead"
        )
    normalizer = _require_bert_rules(settings)
    for index, kind in enumerate(types):
        if kind == NORMAL:
            token = tokens[index]
            is_word_start = not token.startswith(CONTINUATION)
            tokens[index] = WORD_START + token if is_word_start else token[len(CONTINUATION) :]
    lowercase, strip_accents = normalizer["lowercase"], normalizer["strip_accents"]
    metadata |= {
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": lowercase if strip_accents is None else strip_accents,
    }
    return LlamaTokenizer("bert", tokens, types, [], metadata)


def _require_bert_rules(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the normalizer of a WordPiece tokenizer; UserError if the rules are not BERT's."""
    model, normalizer = settings["model"], settings["normalizer"] or {}
    rules = {
        "normalizer": (normalizer.get("type"), "BertNormalizer"),
        "normalizer.clean_text": (normalizer.get("clean_text"), True),
        "normalizer.handle_chinese_chars": (normalizer.get("handle_chinese_chars"), True),
        "pre_tokenizer": ((settings["pre_tokenizer"] or {}).get("type"), "BertPreTokenizer"),
        "model.continuing_subword_prefix": (model["continuing_subword_prefix"], CONTINUATION),
        "model.max_input_chars_per_word": (model["max_input_chars_per_word"], LONGEST_WORD),
    }
    _require_rules(rules)
    return normalizer


def _require_gpt2_rules(settings: dict[str, Any]) -> None:
    """Raise UserError if the rules of a byte-level BPE tokenizer are not those of GPT-2."""
    pre_tokenizer, model = settings["pre_tokenizer"] or {}, settings["model"]
    rules = {
        "normalizer": (settings["normalizer"], None),
        "pre_tokenizer": (pre_tokenizer.get("type"), "ByteLevel"),
        "pre_tokenizer.add_prefix_space": (pre_tokenizer.get("add_prefix_space"), False),
        "pre_tokenizer.use_regex": (pre_tokenizer.get("use_regex", True), True),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix") or None, None),
        "model.end_of_word_suffix": (model.get("end_of_word_suffix") or None, None),
        "model.byte_fallback": (model.get("byte_fallback", False), False),
        "model.ignore_merges": (model.get("ignore_merges", False), False),
    }
    _require_rules(rules)


def _require_rules(rules: dict[str, tuple[Any, Any]]) -> None:
    for name, (value, expected) in rules.items():
        if value != expected:
            raise UserError(
                f"{name} of the tokenizer is {quote(value)} (llama.cpp: {quote(expected)}): export "
                f"to onnx instead"
            )
