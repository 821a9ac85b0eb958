"""Read the tokenizer of a Hugging Face folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers as library

from bertwright.core.errors import UserError
from bertwright.data.tokenization.backend import read_backend
from bertwright.data.tokenization.tokenizer import SPECIAL_TOKEN_NAMES, TOKENIZER_FILE, Tokenizer
from bertwright.interop.huggingface.tokenizer.checks import (
    register_special_tokens,
    require_declared_added_tokens,
    require_default_class,
    require_matching_added_tokens,
    require_matching_ids,
    tokens_by_id,
)
from bertwright.interop.huggingface.tokenizer.classes import (
    STOCK_CLASSES,
    conform,
    find_class_name,
    find_stock_class,
)
from bertwright.interop.huggingface.tokenizer.legacy import read_legacy_files
from bertwright.interop.huggingface.tokenizer.settings import (
    ADDED_TOKENS_FILE,
    read_json_file,
    read_tokenizer_settings,
    token_text,
)
from bertwright.interop.huggingface.tokenizer.stock_class import (
    TOKENIZER_CONFIG_FILE,
    TokenizerConflict,
)

SPECIAL_TOKEN_KEYS = {
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "pad": ("pad_token",),
    "mask": ("mask_token",),
}
"""Config keys of special tokens, by role."""

ALL_SPECIAL_TOKEN_KEYS = frozenset(key for keys in SPECIAL_TOKEN_KEYS.values() for key in keys)
SPECIAL_TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")
"""Keys of additional special tokens."""

TOKEN_ID_KEYS = {"start": "bos_token_id", "end": "eos_token_id", "pad": "pad_token_id"}
"""Model config keys of special token ids, by role."""


def read_tokenizer(
    folder: Path, model_config: Mapping[str, Any], published_special_tokens: Mapping[str, str]
) -> Tokenizer:
    """Return the tokenizer of a folder, from tokenizer.json or older files.

    It splits text as Transformers does. Special tokens come from the folder, the model config, or
    ``published_special_tokens``. Raises UserError for a missing or unsupported tokenizer, and for
    files that contradict each other.
    """
    config = read_json_file(folder)
    name = find_class_name(folder, config, model_config)
    stock_class = find_stock_class(folder, name)
    if config.get("split_special_tokens"):
        raise UserError(
            f"{folder / TOKENIZER_CONFIG_FILE}: split_special_tokens is true, which is not "
            f"supported: set it to false"
        )
    if (folder / TOKENIZER_FILE).is_file():
        backend = _read_tokenizer_json(folder, name, config, model_config)
    else:
        backend = read_legacy_files(folder, stock_class)
    register_special_tokens(backend, _named_special_tokens(folder), folder)
    try:
        return Tokenizer(
            backend, _special_token_roles(backend, folder, model_config, published_special_tokens)
        )
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None


def _read_tokenizer_json(
    folder: Path, name: str, config: Mapping[str, Any], model_config: Mapping[str, Any]
) -> library.Tokenizer:
    """Return the tokenizer in tokenizer.json, as the named class reads it."""
    file = folder / TOKENIZER_FILE
    backend = read_backend(file)
    require_matching_ids(
        backend, read_json_file(folder, TOKENIZER_FILE).get("added_tokens", []), file
    )
    settings = json.loads(backend.to_str())
    if name in STOCK_CLASSES:
        original = json.dumps(settings)
        try:
            conform(settings, name, config)
        except TokenizerConflict as error:
            raise UserError(f"{file} contradicts {name}: {error}") from None
        if json.dumps(settings) != original:
            backend = library.Tokenizer.from_str(json.dumps(settings))
    elif not name:
        require_default_class(settings, file, str(model_config.get("model_type")))
    special_tokens = {token for _, token, _ in _named_special_tokens(folder)}
    if "added_tokens_decoder" in config:
        origin = f"added_tokens_decoder of {folder / TOKENIZER_CONFIG_FILE}"
        declared = tokens_by_id(config["added_tokens_decoder"], origin)
        require_matching_added_tokens(backend, declared, origin)
        if name in STOCK_CLASSES:
            require_declared_added_tokens(backend, declared, special_tokens, file)
    else:
        added_ids: dict[str, int] = read_json_file(folder, ADDED_TOKENS_FILE)
        added = {token_id: {"content": token} for token, token_id in added_ids.items()}
        require_matching_added_tokens(backend, added, str(folder / ADDED_TOKENS_FILE))
    return backend


def _named_special_tokens(folder: Path) -> list[tuple[str, str, bool]]:
    """Return the special tokens of a folder: key, token, whether it strips the space before it."""
    tokens: list[tuple[str, str, bool]] = []
    for key, value in read_tokenizer_settings(folder).items():
        values: list[Any] = (
            value if key in SPECIAL_TOKEN_LISTS and isinstance(value, list) else [value]
        )
        if key in SPECIAL_TOKEN_LISTS or key in ALL_SPECIAL_TOKEN_KEYS:
            for entry in values:
                token = token_text(entry)
                strips = isinstance(entry, dict) and bool(entry.get("lstrip"))
                tokens += [] if token is None else [(key, token, strips)]
    return tokens


def _special_token_roles(
    backend: library.Tokenizer,
    folder: Path,
    model_config: Mapping[str, Any],
    published_special_tokens: Mapping[str, str],
) -> dict[str, str]:
    """Return by role the special tokens whose names differ from the defaults.

    A role without a token gets the end, unknown or start token: GPT-2 has one token for all roles.
    """
    settings = read_tokenizer_settings(folder)
    role_ids = {role: model_config.get(key) for role, key in TOKEN_ID_KEYS.items()}
    roles: dict[str, str] = {}
    for role, defaults in SPECIAL_TOKEN_NAMES.items():
        configured = [token_text(settings.get(key)) for key in SPECIAL_TOKEN_KEYS[role]]
        token_id = role_ids.get(role)
        by_id = None
        if isinstance(token_id, int) and token_id >= 0:
            by_id = backend.id_to_token(token_id)
        names = (*configured, published_special_tokens.get(role), *defaults, by_id)
        known = [n for n in names if n is not None and backend.token_to_id(n) is not None]
        if known:
            roles[role] = known[0]
    for role in SPECIAL_TOKEN_NAMES:
        fallbacks = [roles[other] for other in ("end", "unknown", "start") if other in roles]
        if role not in roles and fallbacks:
            roles[role] = fallbacks[0]
    defaults = {
        role: next((token for token in names if backend.token_to_id(token) is not None), None)
        for role, names in SPECIAL_TOKEN_NAMES.items()
    }
    return {role: name for role, name in roles.items() if defaults[role] != name}
