"""The table of public data sets: where they are, what they weigh, how to know them again."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Self

import yaml

from bertwright.axes import did_you_mean
from bertwright.errors import UserError

_UNKNOWN = "-"
_NAMED = "=>"


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch: ``urls`` hold the same bytes; what nobody has published is None."""

    name: str
    urls: tuple[str, ...]
    sha256: str | None = None
    num_bytes: int | None = None

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read a line of the table."""
        stated, _, name = line.partition(_NAMED)
        sha256, size, *urls = stated.split()
        return cls(
            name.strip() or urls[0].rpartition("/")[2],
            tuple(urls),
            None if sha256 == _UNKNOWN else sha256,
            None if size == _UNKNOWN else int(size),
        )


@dataclass(frozen=True)
class PublicSet:
    """A data set: what it is, under which licence, and what to do with its files."""

    name: str
    about: str
    licence: str
    use: str
    files: tuple[RemoteFile, ...]

    @property
    def num_bytes(self) -> int | None:
        """How much there is to fetch, where that is known of every file."""
        sizes = [file.num_bytes for file in self.files if file.num_bytes is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def checked(self) -> bool:
        """Whether the published digest of every file is known."""
        return all(file.sha256 for file in self.files)


@cache
def public_sets() -> dict[str, PublicSet]:
    """All data sets of the table, by name."""
    text = (resources.files("bertwright.text") / "public_sets.yaml").read_text(encoding="utf-8")
    return {
        name: PublicSet(
            name,
            stated["about"],
            stated["licence"],
            stated["use"],
            tuple(map(RemoteFile.parse, stated["files"].splitlines())),
        )
        for name, stated in yaml.safe_load(text).items()
    }


def find_public_set(name: str) -> PublicSet:
    """The data set of that name. Errors: UserError for a name that the table does not have."""
    if name not in public_sets():
        raise UserError(f"get: no data set {name!r}{did_you_mean(name, public_sets())}")
    return public_sets()[name]
