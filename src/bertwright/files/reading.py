"""Small files that are read whole."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from bertwright.errors import UserError


def read_text(path: Path) -> str:
    """Return the text of a small file; UserError for bytes that are not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start + 1} is not UTF-8: convert it to UTF-8"
        ) from error


MAX_DEPTH = 100
"""Lists and objects inside one another, in JSON."""


def json_value(text: str, object_pairs_hook: Callable[[list[Any]], Any] | None = None) -> Any:
    """Return the value of a JSON text; ValueError for every text that cannot be read, also for one
    that nests too deep or has a number of thousands of digits."""
    try:
        value = json.loads(text, object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:
        if str(error).startswith("Exceeds the limit"):
            raise ValueError("a number has more digits than any that is read") from None
        raise
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _require_shallow(value)
    return value


_TOO_DEEP = f"more than {MAX_DEPTH} lists and objects stand inside one another"


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = (part.values() if isinstance(part, dict) else part for part in level)
        level = [value for part in inside for value in part if isinstance(value, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def parse_json(text: str, where: str, remedy: str) -> Any:
    """Return the value of a JSON text; UserError that names ``where`` it stands and a ``remedy``
    for every text that cannot be read."""
    try:
        return json_value(text)
    except ValueError as error:
        raise UserError(f"{where} is not JSON ({error}): {remedy}") from None


def read_findings(file: Path) -> dict[str, Any]:
    """Return the results that a JSON file keeps; nothing where there is none.

    Errors: UserError for a file that holds anything else.
    """
    if not file.is_file():
        return {}
    findings = parse_json(read_text(file), str(file), "remove it, or name another -o")
    if not isinstance(findings, dict):
        raise UserError(f"{file} holds no findings: remove it, or name another -o")
    return cast(dict[str, Any], findings)


def digests(path: Path) -> dict[str, str]:
    """Return the SHA-256 sums of a file, or of all files of a folder, by name."""
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    sums: dict[str, str] = {}
    for file in files:
        with open(file, "rb") as opened:
            sums[str(file.relative_to(path.parent))] = hashlib.file_digest(
                opened, "sha256"
            ).hexdigest()
    return sums


def content_hash(*paths: Path) -> str:
    """Return one SHA-256 sum of files and of all that folders hold, whatever they are called and
    wherever they stand; checkpoints of a training are left out."""
    whole = hashlib.sha256()
    for path in paths:
        files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
        for file in files:
            name = file.relative_to(path)
            if "checkpoints" in name.parts:
                continue
            with open(file, "rb") as opened:
                whole.update(os.fsencode(name))
                whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()
