"""The manifest of a prepared data set: what the folder holds, and what it was made from."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from bertwright.axes import Settings
from bertwright.errors import UserError
from bertwright.files import json_value

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1

PieceType = Literal["uint16", "uint32"]


class File(Settings):
    """One file of a data folder."""

    bytes: int
    sha256: str


class LanguageCounts(Settings):
    """What a split holds in one language."""

    pieces: int = 0
    documents: int = 0


class Counts(Settings):
    """What a split holds."""

    pieces: int = 0
    documents: int = 0
    sentences: int = 0
    words: int = 0
    translations: int = 0
    phrases: int = 0
    entities: int = 0
    turns: int = 0
    languages: dict[str, LanguageCounts] = Field(default_factory=dict[str, LanguageCounts])


class TokenizerIdentity(Settings):
    """Which tokenizer made the pieces."""

    kind: str
    size: int
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
