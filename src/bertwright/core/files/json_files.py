"""Reading JSON and small text files, and hashes of files."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bertwright.core.errors import UserError


def read_text(path: Path) -> str:
    """Return the text of a small file; UserError for bytes that are not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start + 1} is not UTF-8: convert it to UTF-8"
        ) from error


MAX_JSON_DEPTH = 100
"""Maximum nesting depth of JSON."""


def loads_json(text: str, object_pairs_hook: Callable[[list[Any]], Any] | None = None) -> Any:
    """Return the value of a JSON text.

    Errors: ValueError for invalid JSON, for nesting that is too deep, and for numbers with
    thousands of digits.
    """
    try:
        value = json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError(_TOO_DEEP_MESSAGE) from None
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):
            raise ValueError("a number has too many digits") from None
        raise
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH:
        _require_shallow(value)
    return value


_TOO_DEEP_MESSAGE = f"more than {MAX_JSON_DEPTH} lists and objects are nested"


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        inside = (part.values() if isinstance(part, dict) else part for part in level)
        level = [value for part in inside for value in part if isinstance(value, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP_MESSAGE)


def parse_json(text: str, location: str, remedy: str) -> Any:
    """Return the value of a JSON text; UserError with ``location`` and ``remedy`` if invalid."""
    try:
        return loads_json(text)
    except ValueError as error:
        raise UserError(f"{location} is not JSON ({error}): {remedy}") from None


def read_json_lines(file: Path, truncate: bool = False) -> list[Any]:
    """Return the values of a JSON lines file, up to the first incomplete line.

    A killed process may leave one. With ``truncate`` the rest of the file is removed, so that lines
    can be appended.
    """
    values: list[Any] = []
    num_bytes = 0
    if not file.is_file():
        return values
    with open(file, "rb") as stream:
        for line in stream:
            try:
                value = loads_json(line.decode())
            except ValueError:
                break
            if not line.endswith(b"\n"):
                break
            values.append(value)
            num_bytes += len(line)
    if truncate:
        os.truncate(file, num_bytes)
    return values


def read_results(file: Path) -> dict[str, Any]:
    """Return the results in a JSON file; {} if there is no file.

    Errors: UserError for a file that is not a JSON object.
    """
    if not file.is_file():
        return {}
    results = parse_json(read_text(file), str(file), "remove it, or choose another output file")
    if not isinstance(results, dict):
        raise UserError(f"{file} holds no results: remove it, or choose another output file")
    return cast(dict[str, Any], results)


def file_digests(path: Path) -> dict[str, str]:
    """Return the SHA-256 digests of a file, or of all files of a folder, by relative path."""
    digests: dict[str, str] = {}
    for file in _files_in(path):
        with open(file, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            digests[str(file.relative_to(path.parent))] = digest
    return digests


def content_hash(*paths: Path) -> str:
    """Return one SHA-256 digest of the content of files and folders, without checkpoints.

    It does not depend on the names of the paths themselves.
    """
    total = hashlib.sha256()
    for path in paths:
        for file in _files_in(path):
            name = file.relative_to(path)
            if "checkpoints" in name.parts:
                continue
            with open(file, "rb") as opened:
                total.update(os.fsencode(name))
                total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()


def _files_in(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
