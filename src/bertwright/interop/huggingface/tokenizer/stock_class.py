"""What a tokenizer class of Transformers is, and the error for a file that contradicts it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.core.errors import UserError

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

TokenizerJson = dict[str, Any]
"""The content of a tokenizer.json."""


@dataclass(frozen=True)
class StockTokenizerClass:
    """A tokenizer class that reads only the vocabulary from tokenizer.json.

    ``conform`` changes a tokenizer.json to match the class and its configuration; ``files`` are
    read if there is no tokenizer.json.
    """

    model_type: str
    conform: Callable[[TokenizerJson, Mapping[str, Any]], None]
    files: tuple[str, ...] = ()


class TokenizerConflict(UserError):
    """A setting of tokenizer.json that contradicts its class or configuration."""
