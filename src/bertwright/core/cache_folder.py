"""Small JSON files of measurements of this machine, kept between runs."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from bertwright.core.files import write_text


def cache_folder() -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/bertwright``.

    Errors: FileNotFoundError for a user without a home folder, as in some containers.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertwright"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home folder") from error


def read_cache(file_name: str) -> dict[str, Any]:
    """Return the entries of a cache file; {} if it is missing or damaged."""
    with suppress(OSError, ValueError):
        entries: Any = json.loads((cache_folder() / file_name).read_text(encoding="utf-8"))
        if isinstance(entries, dict):
            return cast(dict[str, Any], entries)
    return {}


def update_cache(file_name: str, entries: Mapping[str, Any]) -> None:
    """Add entries to a cache file; do nothing if the folder cannot be written to."""
    with suppress(OSError):
        write_text(
            cache_folder() / file_name, json.dumps({**read_cache(file_name), **entries}, indent=1)
        )
