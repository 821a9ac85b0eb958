"""The manifest of a prepared data set: its content and its sources."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.files import loads_json
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE as TOKENIZER_FILE

MANIFEST = "manifest.json"
TOKEN_COUNTS = "token_counts.npy"
SCHEMA_VERSION = 1
WORD_RANK_INTERVAL = 1024
"""Distance in tokens between stored word counts."""

TokenDtype = Literal["uint16", "uint32"]


class FileInfo(Settings):
    """A file of a data folder."""

    bytes: int = Field(ge=0)
    sha256: str


class LanguageCounts(Settings):
    """A count of a split's content in one language."""

    tokens: int = Field(default=0, ge=0)
    documents: int = Field(default=0, ge=0)


class SplitCounts(Settings):
    """A count of a split's content."""

    tokens: int = Field(default=0, ge=0)
    documents: int = Field(default=0, ge=0)
    sentences: int = Field(default=0, ge=0)
    words: int = Field(default=0, ge=0)
    translations: int = Field(default=0, ge=0)
    phrases: int = Field(default=0, ge=0)
    entities: int = Field(default=0, ge=0)
    turns: int = Field(default=0, ge=0)
    languages: dict[str, LanguageCounts] = Field(default_factory=dict[str, LanguageCounts])


class TokenizerInfo(Settings):
    """A reference to the tokenizer of a data set."""

    kind: str
    vocab_size: int = Field(ge=1)
    hash: str


class DatasetManifest(Settings):
    """A manifest of a data folder.

    ``hash`` identifies the content: it is the same for the same documents and tokenizer.
    ``languages`` are the codes of the documents' languages, empty if unknown.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    hash: str
    tokenizer: TokenizerInfo
    token_dtype: TokenDtype
    splits: dict[str, SplitCounts]
    files: dict[str, FileInfo]
    sources: list[dict[str, str | int]]
    languages: tuple[str, ...] = ()
    has_annotations: bool = False
    has_dialogues: bool = False
    has_capitals: bool = False


def shard_name(split: str, array: str) -> str:
    """Return the file name of an array of a split."""
    return f"{split}.{array}.bin"


def smallest_token_dtype(vocab_size: int) -> TokenDtype:
    """Return the smallest dtype for the token ids of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def dataset_hash(
    tokenizer: TokenizerInfo, files: Mapping[str, FileInfo], languages: tuple[str, ...]
) -> str:
    """Return a hash of the content of a data set."""
    content: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "tokenizer": tokenizer.hash,
        "shards": {name: file.sha256 for name, file in files.items() if name != TOKENIZER_FILE},
    }
    if languages:
        content["languages"] = languages
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_manifest(file: Path) -> DatasetManifest:
    """Read a manifest; UserError if it is damaged or of another schema version."""
    try:
        settings = loads_json(file.read_text())
        version = settings["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise damage_error(file, "it is not a manifest") from None
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{file}: the data has format {version}, this version reads {SCHEMA_VERSION}: "
            "prepare it again"
        )
    try:
        return DatasetManifest.model_validate(settings)
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise damage_error(file, f"{key} is wrong") from None


def damage_error(file: Path, reason: str) -> UserError:
    """Return the error for a file that is not as it was written."""
    return UserError(f"{file} is damaged ({reason}): prepare the data again")
