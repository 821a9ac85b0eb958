"""Check that the files of a tokenizer agree with each other."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers as library

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE
from bertwright.interop.huggingface.tokenizer.classes import DEFAULT_CLASSES, conform
from bertwright.interop.huggingface.tokenizer.stock_class import (
    TOKENIZER_CONFIG_FILE,
    TokenizerConflict,
    TokenizerJson,
)

ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
"""Flags that determine where an added token matches in a text."""


def require_matching_ids(
    backend: library.Tokenizer, added_tokens: Iterable[Mapping[str, Any]], file: Path
) -> None:
    """Raise UserError if the library gives an added token another id than its file states."""
    for token in added_tokens:
        token_id = backend.token_to_id(token["content"])
        if token_id != token["id"]:
            raise UserError(
                f"{file}: the added token {token['content']!r} has the id {token['id']}, and the "
                f"tokenizers library assigns {token_id}: added tokens must follow the "
                f"vocabulary without gaps"
            )


def require_default_class(tokenizer_json: TokenizerJson, file: Path, model_type: str) -> None:
    """Raise UserError if the default class of a model type would change a tokenizer.json."""
    conformed = copy.deepcopy(tokenizer_json)
    try:
        conform(conformed, DEFAULT_CLASSES.get(model_type, ""), {})
    except (TokenizerConflict, KeyError):
        return  # written for another class, so it is complete
    for part in ("normalizer", "pre_tokenizer"):
        actual = tokenizer_json[part] or {"type": "none"}
        for key, value in (conformed[part] or {"type": "none"}).items():
            if actual.get(key) != value:
                raise UserError(
                    f"{file}: {key} of its {part} is {_short(actual.get(key))}, and without a "
                    f"{TOKENIZER_CONFIG_FILE} Transformers uses {_short(value)}: add one that "
                    f"states it, or the tokenizer_class PreTrainedTokenizerFast"
                )


def _short(setting: Any) -> Any:
    """Return a setting, or the types of a list of parts."""
    return [part["type"] for part in setting] if isinstance(setting, list) else setting


def tokens_by_id(added_tokens: Any, origin: str) -> dict[int, dict[str, Any]]:
    """Return an ``added_tokens_decoder`` by id; UserError if it is malformed."""
    try:
        tokens = {int(token_id): dict(token) for token_id, token in added_tokens.items()}
    except (AttributeError, TypeError, ValueError):
        tokens = {0: {}}
    if not all(isinstance(token.get("content"), str) for token in tokens.values()):
        raise UserError(f"{origin} holds no tokens by their ids: copy it again")
    return tokens


def require_matching_added_tokens(
    backend: library.Tokenizer, added_tokens: Mapping[int, Mapping[str, Any]], origin: str
) -> None:
    """Raise UserError if another file's added tokens, by id, differ from tokenizer.json's."""
    added = backend.get_added_tokens_decoder()
    for token_id, token in added_tokens.items():
        known = added.get(token_id)
        if known is None or known.content != token["content"]:
            raise UserError(
                f"{origin} has {token['content']!r} with the id {token_id}, and {TOKENIZER_FILE} "
                f"{'none' if known is None else repr(known.content)}: copy the files that belong "
                f"together"
            )
        for flag in ADDED_TOKEN_FLAGS:
            if token.get(flag, getattr(known, flag)) != getattr(known, flag):
                raise UserError(
                    f"{origin} and {TOKENIZER_FILE} disagree on {flag} of {known.content!r}: make "
                    f"them agree"
                )


def require_declared_added_tokens(
    backend: library.Tokenizer,
    declared_ids: Collection[int],
    special_tokens: Collection[str],
    file: Path,
) -> None:
    """Raise UserError for added tokens that a class reading only the vocabulary would not have."""
    for token_id, token in backend.get_added_tokens_decoder().items():
        if token_id not in declared_ids and token.content not in special_tokens:
            raise UserError(
                f"{file} has the added token {token.content!r}, and added_tokens_decoder of "
                f"{TOKENIZER_CONFIG_FILE} has not: add it there"
            )


def register_special_tokens(
    backend: library.Tokenizer, special_tokens: Sequence[tuple[str, str, bool]], folder: Path
) -> None:
    """Register special tokens (key, token, whether it strips the space before it) as unsplittable.

    Raises UserError for a token that is not in the vocabulary.
    """
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for key, token, strips in special_tokens:
        if backend.token_to_id(token) is None:
            raise UserError(
                f"{folder}: {key} is {token!r}, which is not in the vocabulary: copy the files "
                f"that belong together"
            )
        if token not in known:
            added = library.AddedToken(token, lstrip=strips, normalized=False, special=True)
            backend.add_special_tokens([added])
