"""The table of public data sets: URLs, sizes and checksums."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Self

import yaml

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError

_UNKNOWN = "-"
_NAME_SEPARATOR = "=>"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download from any of ``urls``; digest and size are None if not published."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    num_bytes: int | None = None

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse a line of the table."""
        fields, _, name = line.partition(_NAME_SEPARATOR)
        sha256, size, *urls = fields.split()
        return cls(
            name.strip() or urls[0].rpartition("/")[2],
            tuple(urls),
            None if sha256 == _UNKNOWN else sha256,
            None if size == _UNKNOWN else int(size),
        )


@dataclass(frozen=True)
class PublicDataset:
    """A public data set with its description, licence, usage and files."""

    name: str
    description: str
    licence: str
    usage: str
    files: tuple[RemoteFile, ...]

    @property
    def num_bytes(self) -> int | None:
        """Return the download size; None if the size of a file is unknown."""
        sizes = [file.num_bytes for file in self.files if file.num_bytes is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def has_checksums(self) -> bool:
        """Return whether every file has a published digest."""
        return all(file.sha256 for file in self.files)


@cache
def public_datasets() -> dict[str, PublicDataset]:
    """Return all public data sets by name."""
    file = resources.files("bertwright.data") / "public_datasets.yaml"
    return {
        name: PublicDataset(
            name,
            entry["description"],
            entry["licence"],
            entry["usage"],
            tuple(map(RemoteFile.parse, entry["files"].splitlines())),
        )
        for name, entry in yaml.safe_load(file.read_text(encoding="utf-8")).items()
    }


def find_public_dataset(name: str) -> PublicDataset:
    """Return the public data set of that name; UserError for an unknown name."""
    if name not in public_datasets():
        raise UserError(f"get: no data set {name!r}{did_you_mean(name, public_datasets())}")
    return public_datasets()[name]
