"""Check downloaded files against the hashes that the Hub states.

The cache keeps the content of a file under its hash: SHA-256 for large files, Git's SHA-1 for
others. The client compares sizes only. Files that were checked once are recorded in
bertwright's cache, and checked again only if they change.
"""

import hashlib
from pathlib import Path
from typing import Any

from bertwright.core.cache_folder import read_cache, update_cache
from bertwright.core.errors import UserError
from bertwright.data.hub.reference import HubReference

CHECKED_FILES = "hub-files.json"

_SHA256_LENGTH, _GIT_HASH_LENGTH = 64, 40
_BLOCK_BYTES = 1 << 20


def verify_snapshot(folder: Path, reference: HubReference) -> None:
    """Raise UserError for a file that differs from what the Hub states, and remove it."""
    checked, new = read_cache(CHECKED_FILES), dict[str, Any]()
    for file in sorted(folder.rglob("*")):
        content = file.resolve()
        if content == file or not content.is_file():
            continue  # a folder, or a cache without symbolic links
        status = content.stat()
        state = [status.st_size, status.st_mtime_ns]
        if checked.get(str(content)) == state:
            continue
        if not _has_hash(content, content.name):
            file.unlink()
            content.unlink()
            raise UserError(
                f"{reference}: {file.relative_to(folder)} differs from the hash that the Hub "
                f"states, so it was removed: run again to download it again"
            )
        new[str(content)] = state
    if new:
        update_cache(CHECKED_FILES, new)


def _has_hash(file: Path, expected: str) -> bool:
    """Return whether the content of a file has a hash; True for a hash of unknown type."""
    if len(expected) == _SHA256_LENGTH:
        digest = hashlib.sha256()
    elif len(expected) == _GIT_HASH_LENGTH:
        digest = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    else:
        return True
    with open(file, "rb") as opened:
        while block := opened.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == expected
