"""What the files of a tokenizer say of one thing: the same, or a refusal that names it."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers as library

from bertwright.errors import UserError
from bertwright.interop.huggingface.tokenizer_classes import (
    CONFIG,
    REGISTERED,
    Contradiction,
    Settings,
    conform,
)
from bertwright.text.tokenizers import FILE

FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
"""What decides where an added token is recognised in a text."""


def require_ids(backend: library.Tokenizer, added: Iterable[Mapping[str, Any]], file: Path) -> None:
    """UserError where the library gives an added token another id than its file states."""
    for token in added:
        number = backend.token_to_id(token["content"])
        if number != token["id"]:
            raise UserError(
                f"{file}: the added token {token['content']!r} has the id {token['id']}, and the "
                f"tokenizers library reads it as {number}: added tokens come behind the "
                f"vocabulary, without gaps"
            )


def require_usual(settings: Settings, file: Path, model_type: str) -> None:
    """UserError where the class of a model's type would read a tokenizer.json otherwise, and no
    file names a class."""
    usual = copy.deepcopy(settings)
    try:
        conform(usual, REGISTERED.get(model_type, ""), {})
    except (Contradiction, KeyError):
        return  # a file of another make, which says all that it means
    for part in ("normalizer", "pre_tokenizer"):
        for key, value in (usual[part] or {}).items():
            if (here := settings[part].get(key)) != value:
                raise UserError(
                    f"{file}: {key} of its {part} is {here}, and without a {CONFIG} Transformers "
                    f"takes {value}: write one that states it, or the tokenizer_class "
                    f"PreTrainedTokenizerFast"
                )


def tokens_by_id(stated: Any, origin: str) -> dict[int, dict[str, Any]]:
    """Return what an ``added_tokens_decoder`` states; UserError where it is none."""
    try:
        tokens = {int(number): dict(token) for number, token in stated.items()}
    except (AttributeError, TypeError, ValueError):
        tokens = {0: {}}
    if not all(isinstance(token.get("content"), str) for token in tokens.values()):
        raise UserError(f"{origin} holds no tokens by their ids: copy it again")
    return tokens


def require_added(
    backend: library.Tokenizer, stated: Mapping[int, Mapping[str, Any]], origin: str
) -> None:
    """UserError where another file states other added tokens, by their ids, than tokenizer.json."""
    added = backend.get_added_tokens_decoder()
    for number, token in stated.items():
        known = added.get(number)
        if known is None or known.content != token["content"]:
            raise UserError(
                f"{origin} has {token['content']!r} with the id {number}, and {FILE} "
                f"{'none' if known is None else repr(known.content)}: copy the files that belong "
                f"together"
            )
        for flag in FLAGS:
            if token.get(flag, getattr(known, flag)) != getattr(known, flag):
                raise UserError(
                    f"{origin} and {FILE} disagree on {flag} of {known.content!r}: make them agree"
                )


def require_stated(
    backend: library.Tokenizer, stated: Collection[int], named: Collection[str], file: Path
) -> None:
    """UserError for an added token that is neither stated nor named elsewhere: a class that reads
    the vocabulary alone does not know it."""
    for number, token in backend.get_added_tokens_decoder().items():
        if number not in stated and token.content not in named:
            raise UserError(
                f"{file} has the added token {token.content!r}, and added_tokens_decoder of "
                f"{CONFIG} has not: add it there"
            )


def know_named(
    backend: library.Tokenizer, named: Sequence[tuple[str, str, bool]], folder: Path
) -> None:
    """Know the special tokens that a folder names (the key, the token, and whether it takes the
    space before it) as such: none is split.

    Errors: UserError for one that the vocabulary does not hold.
    """
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    for key, token, strips in named:
        if backend.token_to_id(token) is None:
            raise UserError(
                f"{folder}: {key} is {token!r}, which the vocabulary does not hold: copy the files "
                f"that belong together"
            )
        if token not in known:
            added = library.AddedToken(token, lstrip=strips, normalized=False, special=True)
            backend.add_special_tokens([added])
