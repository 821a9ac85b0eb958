"""Settings in tokenizer_config.json and special_tokens_map.json."""

from pathlib import Path
from typing import Any

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text
from bertwright.interop.huggingface.tokenizer.stock_class import TOKENIZER_CONFIG_FILE

SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE = "special_tokens_map.json", "added_tokens.json"

NO_MAX_LENGTH = int(1e30)
"""The number that stock tokenizers write for an unlimited length."""

JSON_TYPE_NAMES: dict[type, str] = {dict: "JSON object", list: "JSON list"}
SETTING_TYPES: dict[str, Any] = {
    "add_prefix_space": bool,
    "do_lower_case": bool,
    "model_max_length": int | float,
    "strip_accents": bool,
    "tokenize_chinese_chars": bool,
}
"""Types of the settings that are read."""


def read_json_file(
    folder: Path, name: str = TOKENIZER_CONFIG_FILE, expected_type: type = dict
) -> Any:
    """Return the object or list in a JSON file; an empty one if there is no file.

    Raises UserError for other content and for settings of the wrong type.
    """
    file = folder / name
    if not file.is_file():
        return expected_type()
    content = parse_json(read_text(file), str(file), "copy it again")
    if not isinstance(content, expected_type):
        raise UserError(f"{file} holds no {JSON_TYPE_NAMES[expected_type]}: copy it again")
    for key, setting_type in SETTING_TYPES.items() if name == TOKENIZER_CONFIG_FILE else ():
        if not isinstance(content.get(key, None), setting_type | None):
            raise UserError(f"{file}: {key} is {quote(content[key])}, which has the wrong type")
    return content


def read_tokenizer_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a tokenizer.

    The legacy special_tokens_map.json is ignored if there is an added_tokens_decoder, as in
    Transformers.
    """
    config = read_json_file(folder)
    return (
        config
        if "added_tokens_decoder" in config
        else {**config, **read_json_file(folder, SPECIAL_TOKENS_FILE)}
    )


def token_text(token: Any) -> str | None:
    """Return the text of a token, given as a string or as an object with ``content``."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def read_model_max_length(folder: Path) -> int | None:
    """Return the maximum length in a folder's tokenizer settings; None if there is none."""
    stated = read_json_file(folder).get("model_max_length")
    return int(stated) if stated is not None and 0 < stated < NO_MAX_LENGTH else None
