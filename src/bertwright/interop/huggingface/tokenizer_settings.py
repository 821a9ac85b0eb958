"""The settings of a tokenizer's JSON files: tokenizer_config.json and special_tokens_map.json."""

from pathlib import Path
from typing import Any

from bertwright.axes import quoted
from bertwright.errors import UserError
from bertwright.files import parse_json, read_text
from bertwright.interop.huggingface.tokenizer_classes import CONFIG

SPECIALS, ADDED = "special_tokens_map.json", "added_tokens.json"

NO_LIMIT = int(1e30)
"""How stock tokenizers write that a row may have any length."""

KINDS: dict[type, str] = {dict: "JSON object", list: "JSON list"}
SETTINGS: dict[str, Any] = {
    "add_prefix_space": bool,
    "do_lower_case": bool,
    "model_max_length": int | float,
    "strip_accents": bool,
    "tokenize_chinese_chars": bool,
}
"""The types of what is read of a tokenizer's configuration."""


def read_json(folder: Path, name: str = CONFIG, kind: type = dict) -> Any:
    """Return what a JSON file holds, an object or a list; an empty one where there is no file.

    Errors: UserError where it holds anything else, or a setting of a wrong type.
    """
    file = folder / name
    if not file.is_file():
        return kind()
    stated = parse_json(read_text(file), str(file), "copy it again")
    if not isinstance(stated, kind):
        raise UserError(f"{file} holds no {KINDS[kind]}: copy it again")
    for key, expected in SETTINGS.items() if name == CONFIG else ():
        if not isinstance(stated.get(key, None), expected | None):
            raise UserError(f"{file}: {key} is {quoted(stated[key])}, which it cannot be")
    return stated


def stated_settings(folder: Path) -> dict[str, Any]:
    """What the files of a tokenizer state. special_tokens_map.json is of older days: Transformers
    does not read it beside an added_tokens_decoder."""
    config = read_json(folder)
    return config if "added_tokens_decoder" in config else {**config, **read_json(folder, SPECIALS)}


def token_text(stated: Any) -> str | None:
    """A piece as a configuration writes it: its text, or what else is known of it as well."""
    piece = stated.get("content") if isinstance(stated, dict) else stated
    return piece if isinstance(piece, str) else None


def longest_row(folder: Path) -> int | None:
    """The longest row that the tokenizer of a folder states; None where it states none."""
    stated = read_json(folder).get("model_max_length")
    return int(stated) if stated is not None and 0 < stated < NO_LIMIT else None
