"""The manifest of a prepared data set: its content and its sources."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.files import loads_json
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE

MANIFEST = "manifest.json"
TOKEN_COUNTS = "token_counts.npy"
SCHEMA_VERSION = 1
WORD_RANK_INTERVAL = 1024
"""Number of tokens between two entries of ``words_before``."""

TokenDtype = Literal["uint16", "uint32"]


class FileInfo(Settings):
    """A size and checksum of a file in a data folder."""

    bytes: int = Field(ge=0)
    sha256: str


class LanguageCounts(Settings):
    """Counts of a split's documents and tokens in one language."""

    tokens: int = Field(default=0, ge=0)
    documents: int = Field(default=0, ge=0)


class SplitCounts(Settings):
    """Counts of a split's tokens, documents, sentences, words and optional parts."""

    tokens: int = Field(default=0, ge=0)
    documents: int = Field(default=0, ge=0)
    sentences: int = Field(default=0, ge=0)
    words: int = Field(default=0, ge=0)
    translations: int = Field(default=0, ge=0)
    phrases: int = Field(default=0, ge=0)
    entities: int = Field(default=0, ge=0)
    turns: int = Field(default=0, ge=0)
    languages: dict[str, LanguageCounts] = Field(default_factory=dict[str, LanguageCounts])


@dataclass(frozen=True)
class DatasetFeatures:
    """A set of flags for the optional arrays of a data set."""

    languages: bool = False
    annotations: bool = False
    dialogues: bool = False
    capitals: bool = False


@dataclass(frozen=True)
class ArraySpec:
    """An array of a split, in the file ``SPLIT.NAME.bin``.

    Attributes:
        dtype: NumPy dtype; empty for the token dtype of the data set.
        length: Function from the split's counts to the array's length; None if it varies.
        feature: Flag of :class:`DatasetFeatures` that adds the array; None if always present.
        indexes: Name of the array that the values index, if any.
    """

    name: str
    dtype: str
    length: Callable[[SplitCounts], int | None]
    feature: str | None = None
    indexes: str | None = None


_ARRAYS = (
    ArraySpec("tokens", "", lambda c: c.tokens),
    ArraySpec("boundaries", "uint8", lambda c: c.tokens),
    ArraySpec("word_bytes", "uint16", lambda c: c.words),
    ArraySpec(
        "words_before", "int64", lambda c: -(-c.tokens // WORD_RANK_INTERVAL), None, "word_bytes"
    ),
    ArraySpec("documents", "int64", lambda c: c.documents + 1, None, "tokens"),
    ArraySpec("sentences", "int64", lambda c: c.sentences + 1, None, "tokens"),
    ArraySpec("languages", "uint16", lambda c: c.documents, "languages"),
    ArraySpec("translations", "int64", lambda c: c.translations, "languages", "languages"),
    ArraySpec("phrase_starts", "int64", lambda c: c.phrases, "annotations", "tokens"),
    ArraySpec("phrase_stops", "int64", lambda c: c.phrases, "annotations", "tokens"),
    ArraySpec("entity_starts", "int64", lambda c: c.entities, "annotations", "tokens"),
    ArraySpec("entity_stops", "int64", lambda c: c.entities, "annotations", "tokens"),
    ArraySpec("turn_starts", "int64", lambda c: c.turns, "dialogues", "tokens"),
    ArraySpec("turn_speakers", "uint8", lambda c: c.turns, "dialogues"),
    ArraySpec("capitals", "int64", lambda c: None, "capitals", "tokens"),
)


def array_specs(features: DatasetFeatures, token_dtype: str) -> list[ArraySpec]:
    """Return the arrays of each split of a data set."""
    return [
        replace(spec, dtype=spec.dtype or token_dtype)
        for spec in _ARRAYS
        if spec.feature is None or getattr(features, spec.feature)
    ]


class TokenizerInfo(Settings):
    """An identification of the tokenizer of a data set."""

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

    @property
    def array_specs(self) -> list[ArraySpec]:
        """Return the arrays of each split."""
        features = DatasetFeatures(
            bool(self.languages), self.has_annotations, self.has_dialogues, self.has_capitals
        )
        return array_specs(features, self.token_dtype)


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


def read_manifest(file: Path, name: str | None = None) -> DatasetManifest:
    """Read a manifest; UserError if it is damaged or of another schema version.

    ``name`` is the name of the file in errors, by default its path.
    """
    name = name or str(file)
    try:
        settings = loads_json(file.read_text(encoding="utf-8"))
        version = settings["schema_version"]
    except (ValueError, KeyError, TypeError):
        raise damage_error(name, "it is not a manifest") from None
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{name}: the data has format {version}, this version reads {SCHEMA_VERSION}: "
            "prepare it again"
        )
    try:
        return DatasetManifest.model_validate(settings)
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise damage_error(name, f"{key} is wrong") from None


def damage_error(file: str | Path, reason: str) -> UserError:
    """Return the error for a file that changed since it was written."""
    return UserError(f"{file} is damaged ({reason}): prepare the data again")
