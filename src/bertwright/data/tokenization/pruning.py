"""Reduction of a tokenizer's vocabulary to the tokens that are needed."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import tokenizers as library

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
"""Pattern for the name of a byte token in vocabularies of characters."""

TokenizerSettings = dict[str, Any]


def prune_tokenizer(
    tokenizer: Tokenizer, needed_ids: Collection[int]
) -> tuple[Tokenizer, list[int]]:
    """Return a tokenizer with the needed tokens, and the old id of each new id.

    Added tokens, single characters, bytes and the tokens that the model requires are kept. So no
    text becomes unknown, except words or items of word-level vocabularies. A merge is kept if its
    parts and its result are kept. Text that needs only kept tokens is encoded as before.

    Errors: UserError for an unsupported model.
    """
    settings = deepcopy(tokenizer.settings)
    model = settings["model"]
    if model["type"] not in _REQUIRED_TOKENS:
        raise UserError(f"a tokenizer of the kind {tokenizer.kind} cannot be pruned")
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=False)
    added = {token["id"] for token in settings["added_tokens"]}
    tokens = {tokenizer.id_to_token(token_id) for token_id in needed_ids}
    tokens |= {token for token in vocabulary if _is_single_character(token, model)}
    tokens = _REQUIRED_TOKENS[model["type"]](model, tokens)
    kept = added | tokenizer.special_tokens.all
    kept |= {token_id for token, token_id in vocabulary.items() if token in tokens}
    old_ids = sorted(kept)
    new_ids = {old: new for new, old in enumerate(old_ids)}
    _renumber_model(model, new_ids)
    settings["added_tokens"] = [
        {**token, "id": new_ids[token["id"]]} for token in settings["added_tokens"]
    ]
    _renumber_template(settings["post_processor"], new_ids)
    return Tokenizer(library.Tokenizer.from_str(json.dumps(settings)), tokenizer.roles), old_ids


def is_byte_token(token: str) -> bool:
    """Return whether a token stands for a byte without a token, in a vocabulary of characters."""
    return _BYTE_TOKEN.fullmatch(token) is not None


def _is_single_character(token: str, model: TokenizerSettings) -> bool:
    """Return whether a token is one character, with or without affixes, or one byte."""
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    text = token.removeprefix(prefix).removesuffix(suffix)
    return len(token) == 1 or len(text) == 1 or is_byte_token(token)


def _add_unknown(model: TokenizerSettings, tokens: set[str]) -> set[str]:
    return tokens | {model["unk_token"]}


def _add_merge_parts(model: TokenizerSettings, tokens: set[str]) -> set[str]:
    """Return the tokens, and all tokens that they are merged from."""
    parts: dict[str, set[str]] = {}
    for merge in _read_merges(model):
        parts.setdefault(_merge_result(model, merge), set()).update(merge)
    result, new = set[str](), tokens
    while new:
        result |= new
        new = {part for token in new for part in parts.get(token, ())} - result
    return result


def _add_least_probable(model: TokenizerSettings, tokens: set[str]) -> set[str]:
    """Add the unknown token, and the least probable token, which determines its score."""
    least_probable = min(model["vocab"], key=lambda entry: entry[1])[0]
    return tokens | {least_probable, model["vocab"][model["unk_id"] or 0][0]}


_REQUIRED_TOKENS = {
    "WordPiece": _add_unknown,
    "WordLevel": _add_unknown,
    "BPE": _add_merge_parts,
    "Unigram": _add_least_probable,
}
"""Functions that add the tokens required by each type of model."""


def _read_merges(model: TokenizerSettings) -> Iterable[tuple[str, str]]:
    for merge in model["merges"]:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        yield first, second


def _merge_result(model: TokenizerSettings, merge: Sequence[str]) -> str:
    return merge[0] + merge[1].removeprefix(model.get("continuing_subword_prefix") or "")


def _renumber_model(model: TokenizerSettings, new_ids: Mapping[int, int]) -> None:
    """Renumber a model's tokens in place; drop tokens without a new id."""
    if model["type"] == "Unigram":
        unknown = model["unk_id"]
        model["unk_id"] = None if unknown is None else new_ids[unknown]
        model["vocab"] = [entry for old, entry in enumerate(model["vocab"]) if old in new_ids]
        return
    vocabulary = {token: new_ids[old] for token, old in model["vocab"].items() if old in new_ids}
    model["vocab"] = vocabulary
    if model["type"] == "BPE":
        model["merges"] = [
            [*merge]
            for merge in _read_merges(model)
            if vocabulary.keys() >= {*merge, _merge_result(model, merge)}
        ]


def _renumber_template(template: TokenizerSettings | None, new_ids: Mapping[int, int]) -> None:
    """Renumber the special tokens of a post-processor in place."""
    if template is None:
        return
    for inner in template.get("processors", []):
        _renumber_template(inner, new_ids)
    for special in dict(template.get("special_tokens", {})).values():
        special["ids"] = [new_ids[old] for old in special["ids"]]
    for role in ("cls", "sep"):
        if role in template:
            token, old = template[role]
            template[role] = [token, new_ids[old]]
