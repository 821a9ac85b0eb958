"""The manifest of a search index: its settings, segments and files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.files import file_digests, loads_json, read_text, write_text
from bertwright.data.shards.manifest import FileInfo
from bertwright.models.retrieval_encoder import Representation
from bertwright.retrieval.settings import IndexSettings

MANIFEST_FILE, PROGRESS_FILE = "index.json", "progress.json"
SEGMENTS_FOLDER, PROBE_FILE = "segments", "probe.npy"


class SegmentInfo(Settings):
    """A segment: its folder in ``segments``, its number of texts, and its files by name.

    ``chunks`` is the number of chunks that the texts are split into; None for whole texts.
    """

    name: str = Field(pattern=r"^\d{6}$")
    texts: int = Field(ge=1)
    chunks: int | None = Field(default=None, ge=1)
    files: dict[str, FileInfo]

    @property
    def folder(self) -> str:
        """Return the path of the folder in the index."""
        return f"{SEGMENTS_FOLDER}/{self.name}"

    @property
    def num_vectors(self) -> int:
        """Return the number of texts or chunks that are compared with a query."""
        return self.chunks or self.texts


class IndexManifest(Settings):
    """The content of ``index.json``, which is written last: an index without it is unfinished.

    Attributes:
        representation: the representation of the vectors; None without a model.
        model: the path of the model, if it was given by one.
        segments: the segments in order.
        word_folder: the folder of the BM25 index, if any.
        word_files: its files by name.
    """

    version: int = Field(default=1, ge=1, le=1)
    settings: IndexSettings
    representation: Representation | None = None
    model: str | None = None
    segments: tuple[SegmentInfo, ...] = Field(min_length=1)
    word_folder: str | None = Field(default=None, pattern=r"^words-\d+$")
    word_files: dict[str, FileInfo] = Field(default_factory=dict[str, FileInfo])

    @property
    def num_texts(self) -> int:
        """Return the number of texts."""
        return sum(segment.texts for segment in self.segments)

    @property
    def files(self) -> dict[str, FileInfo]:
        """Return all files by their path in the index."""
        files = {
            f"{segment.folder}/{name}": info
            for segment in self.segments
            for name, info in segment.files.items()
        }
        return files | {f"{self.word_folder}/{name}": i for name, i in self.word_files.items()}

    @property
    def num_bytes(self) -> int:
        """Return the size of all files."""
        return sum(info.bytes for info in self.files.values())


class BuildProgress(Settings):
    """The content of ``progress.json``: the finished segments of a run that adds texts.

    ``provenance`` names what a run that continues it must share.
    """

    provenance: dict[str, str]
    segments: tuple[SegmentInfo, ...] = ()


SettingsT = TypeVar("SettingsT", bound=Settings)


def read_manifest(folder: Path) -> IndexManifest:
    """Return the manifest of an index.

    Errors: UserError for a folder that is no index, or an unfinished one, and for a damaged file.
    """
    if not (folder / MANIFEST_FILE).is_file():
        if (folder / PROGRESS_FILE).is_file():
            raise UserError(
                f"{folder} is an unfinished index: run the same bertwright index with --resume"
            )
        raise UserError(
            f"{folder} is no search index (no {MANIFEST_FILE}): create one with "
            f"'bertwright index TEXT... -o DIR'"
        )
    return read_settings(folder / MANIFEST_FILE, IndexManifest)


def read_settings(file: Path, content_type: type[SettingsT]) -> SettingsT:
    """Return the content of a JSON file; UserError if it is damaged."""
    try:
        return content_type.model_validate(loads_json(read_text(file)))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
    except ValueError as error:
        reason = str(error)
    raise damaged_index_error(file, reason)


def write_settings(file: Path, content: Settings) -> None:
    """Write a JSON file atomically."""
    write_text(file, json.dumps(content.model_dump(mode="json"), indent=1) + "\n")


def describe_files(folder: Path) -> dict[str, FileInfo]:
    """Return the sizes and checksums of the files in a folder, by name."""
    return {
        file.name: FileInfo(bytes=file.stat().st_size, sha256=_sha256(file))
        for file in sorted(folder.iterdir())
    }


def check_files(folder: Path, files: Mapping[str, FileInfo], is_content_checked: bool) -> None:
    """Raise UserError for a missing file, or one with another size or content."""
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            raise damaged_index_error(file, "it is missing")
        if (size := file.stat().st_size) != expected.bytes:
            raise damaged_index_error(file, f"it has {size:,} bytes instead of {expected.bytes:,}")
        if is_content_checked and _sha256(file) != expected.sha256:
            raise damaged_index_error(file, "its checksum differs")


def damaged_index_error(file: Path, reason: str) -> UserError:
    """Return the error for a damaged file of an index."""
    return UserError(f"{file} is damaged ({reason}): copy it again, or build the index again")


def _sha256(file: Path) -> str:
    return file_digests(file)[file.name]
