"""Reading the tokenizer of a Hugging Face folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers as library

from bertwright.errors import UserError
from bertwright.interop.huggingface.tokenizer_checks import (
    know_named,
    require_added,
    require_ids,
    require_stated,
    require_usual,
    tokens_by_id,
)
from bertwright.interop.huggingface.tokenizer_classes import (
    CLASSES,
    CONFIG,
    Contradiction,
    class_name,
    conform,
    stock_class,
)
from bertwright.interop.huggingface.tokenizer_old_formats import read_old_files
from bertwright.interop.huggingface.tokenizer_settings import (
    ADDED,
    read_json,
    stated_settings,
    token_text,
)
from bertwright.text.tokenizer_library import read_backend
from bertwright.text.tokenizers import FILE, SPECIAL_NAMES, Tokenizer

STATED = {
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "mask": ("mask_token",),
}
"""What the files of a tokenizer call the special pieces, by their roles."""

KEYS = frozenset(key for keys in STATED.values() for key in keys)
LISTS = ("additional_special_tokens", "extra_special_tokens")
"""Where they list further special tokens."""

NUMBERED = {"start": "bos_token_id", "end": "eos_token_id", "pad": "pad_token_id"}
"""What the configuration of a model calls their numbers."""


def read_tokenizer(
    folder: Path, model_config: Mapping[str, Any], own_roles: Mapping[str, str]
) -> Tokenizer:
    """The tokenizer of a folder, from tokenizer.json or from the files of older days.

    Text is split as Transformers splits it. The special tokens are those that the folder names, or
    the configuration of its model, or those that its family has under ``own_roles``.

    Errors: UserError where the folder has none, for a class that is not understood, and where its
    files contradict each other.
    """
    config = read_json(folder)
    name = class_name(folder, config, model_config)
    kind = stock_class(folder, name)
    if config.get("split_special_tokens"):
        raise UserError(
            f"{folder / CONFIG}: split_special_tokens is true, which is not read: set it to false"
        )
    if (folder / FILE).is_file():
        backend = _from_file(folder, name, config, model_config)
    else:
        backend = read_old_files(folder, kind)
    know_named(backend, _named(folder), folder)
    try:
        return Tokenizer(backend, _roles(backend, folder, model_config, own_roles))
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def _from_file(
    folder: Path, name: str, config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> library.Tokenizer:
    """The tokenizer of tokenizer.json as the class of this name reads it."""
    file = folder / FILE
    backend = read_backend(file)
    require_ids(backend, read_json(folder, FILE).get("added_tokens", []), file)
    settings = json.loads(backend.to_str())
    if name in CLASSES:
        before = json.dumps(settings)
        try:
            conform(settings, name, config)
        except Contradiction as error:
            raise UserError(f"{file} contradicts {name}: {error}") from None
        if json.dumps(settings) != before:
            backend = library.Tokenizer.from_str(json.dumps(settings))
    elif not name:
        require_usual(settings, file, str(model_config.get("model_type")))
    named = {token for _, token, _ in _named(folder)}
    if "added_tokens_decoder" in config:
        origin = f"added_tokens_decoder of {folder / CONFIG}"
        stated = tokens_by_id(config["added_tokens_decoder"], origin)
        require_added(backend, stated, origin)
        if name in CLASSES:
            require_stated(backend, stated, named, file)
    else:
        listed: dict[str, int] = read_json(folder, ADDED)
        added = {number: {"content": token} for token, number in listed.items()}
        require_added(backend, added, str(folder / ADDED))
    return backend


def _named(folder: Path) -> list[tuple[str, str, bool]]:
    """The special tokens that the files of a tokenizer name: the key, the token, and whether a
    space before it belongs to it."""
    found: list[tuple[str, str, bool]] = []
    for key, value in stated_settings(folder).items():
        values: list[Any] = value if key in LISTS and isinstance(value, list) else [value]
        if key in LISTS or key in KEYS:
            for one in values:
                token = token_text(one)
                strips = isinstance(one, dict) and bool(one.get("lstrip"))
                found += [] if token is None else [(key, token, strips)]
    return found


def _roles(
    backend: library.Tokenizer,
    folder: Path,
    model_config: Mapping[str, Any],
    own_roles: Mapping[str, str],
) -> dict[str, str]:
    """The special pieces that are not those that any tokenizer has. A role that no piece was made
    for has the piece that ends texts, or the unknown one: GPT-2 has one piece for all of them."""
    stated = stated_settings(folder)
    numbers = {role: model_config.get(key) for role, key in NUMBERED.items()}
    found: dict[str, str] = {}
    for role, usual in SPECIAL_NAMES.items():
        named = [token_text(stated.get(key)) for key in STATED[role]]
        number = numbers.get(role)
        numbered = backend.id_to_token(number) if isinstance(number, int) and number >= 0 else None
        names = (*named, own_roles.get(role), *usual, numbered)
        known = [n for n in names if n is not None and backend.token_to_id(n) is not None]
        if known:
            found[role] = known[0]
    for role in SPECIAL_NAMES:
        shared = [found[other] for other in ("end", "unknown", "start") if other in found]
        if role not in found and shared:
            found[role] = shared[0]
    usual = {
        role: next((n for n in names if backend.token_to_id(n) is not None), None)
        for role, names in SPECIAL_NAMES.items()
    }
    return {role: name for role, name in found.items() if usual[role] != name}
