"""The manifest of a prepared data set: what the folder holds, and what it was made from."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from bertwright.axes import Settings
from bertwright.errors import UserError
from bertwright.files import json_value
from bertwright.text.tokenizers import FILE as TOKENIZER_FILE

MANIFEST = "manifest.json"
PIECE_COUNTS = "piece_counts.npy"
SCHEMA_VERSION = 1
RANK_EVERY = 1024
"""Positions between two of which it is stored how many words start before."""

PieceType = Literal["uint16", "uint32"]


class File(Settings):
    """One file of a data folder."""

    bytes: int = Field(ge=0)
    sha256: str


class LanguageCounts(Settings):
    """What a split holds in one language."""

    pieces: int = Field(default=0, ge=0)
    documents: int = Field(default=0, ge=0)


class Counts(Settings):
    """What a split holds."""

    pieces: int = Field(default=0, ge=0)
    documents: int = Field(default=0, ge=0)
    sentences: int = Field(default=0, ge=0)
    words: int = Field(default=0, ge=0)
    translations: int = Field(default=0, ge=0)
    phrases: int = Field(default=0, ge=0)
    entities: int = Field(default=0, ge=0)
    turns: int = Field(default=0, ge=0)
    languages: dict[str, LanguageCounts] = Field(default_factory=dict[str, LanguageCounts])


class TokenizerIdentity(Settings):
    """Which tokenizer made the pieces."""

    kind: str
    size: int = Field(ge=1)
    hash: str


class Manifest(Settings):
    """What a data folder holds, and what it was made from.

    ``hash`` names the content: it is the same for the same documents and tokenizer. ``languages``
    are the codes of those that the documents are in, empty where nobody said.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    hash: str
    tokenizer: TokenizerIdentity
    piece_type: PieceType
    splits: dict[str, Counts]
    files: dict[str, File]
    sources: list[dict[str, str | int]]
    languages: tuple[str, ...] = ()
    annotated: bool = False
    dialogues: bool = False
    capitals: bool = False


def shard_name(split: str, array: str) -> str:
    """Return the file of one array of a split."""
    return f"{split}.{array}.bin"


def piece_type(size: int) -> PieceType:
    """Return the smallest type that holds every one of so many pieces."""
    return "uint16" if size <= 1 << 16 else "uint32"


def content_hash(
    tokenizer: TokenizerIdentity, files: Mapping[str, File], languages: tuple[str, ...]
) -> str:
    """Return what names the content of a data set."""
    shards = {name: file.sha256 for name, file in files.items() if name != TOKENIZER_FILE}
    deciding: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "tokenizer": tokenizer.hash,
        "shards": shards,
    }
    if languages:
        deciding["languages"] = languages
    return sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()


def read_manifest(file: Path) -> Manifest:
    """The manifest in a file.

    Errors: UserError for one that is damaged, or of another format.
    """
    try:
        settings = json_value(file.read_text())
        version = settings["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise damaged(file, "it is not a manifest") from None
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{file}: the data have format {version}, this version reads {SCHEMA_VERSION}: "
            "prepare them again"
        )
    try:
        return Manifest.model_validate(settings)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise damaged(file, f"{place} is wrong") from None


def damaged(file: Path, why: str) -> UserError:
    """What is said of a file that is not as it was written."""
    return UserError(f"{file} is damaged ({why}): prepare the data again")
