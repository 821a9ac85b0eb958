"""What this machine has measured or checked, kept between runs."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from bertwright.files import write_text


def cache_folder() -> Path:
    """Return the folder of small files that are kept between runs:
    ``$XDG_CACHE_HOME/bertwright``.

    Errors: FileNotFoundError for a user without a home, as there are in containers.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertwright"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home folder") from error


def recall(file_name: str) -> dict[str, Any]:
    """Return the entries of a file of the cache folder; none where it is missing or damaged."""
    with suppress(OSError, ValueError):
        entries: Any = json.loads((cache_folder() / file_name).read_text(encoding="utf-8"))
        if isinstance(entries, dict):
            return cast(dict[str, Any], entries)
    return {}


def remember(file_name: str, entries: Mapping[str, Any]) -> None:
    """Add entries to a file of the cache folder; a folder that cannot be written to is left."""
    with suppress(OSError):
        write_text(
            cache_folder() / file_name, json.dumps({**recall(file_name), **entries}, indent=1)
        )
