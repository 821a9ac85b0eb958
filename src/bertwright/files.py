"""Files and folders that appear whole or not at all."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from bertwright.errors import UserError

READABLE = 0o644
"""Some libraries write files that only their owner can read; what is kept is for others too."""


@contextmanager
def atomic_folder(path: Path) -> Generator[Path]:
    """A temporary folder beside ``path`` that takes its name when the block ends without error.

    What a killed process left of an earlier attempt is removed first. Errors: UserError when
    ``path`` already holds something, or when the disk is full.
    """
    path = Path(path)
    require_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f".{glob.escape(path.name)}-????????"):
        with suppress(OSError), held(abandoned):
            shutil.rmtree(abandoned)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        with full_disk_named(path), held(temporary):
            yield temporary
            sync_tree(temporary)
        if path.is_dir():
            path.rmdir()
        os.chmod(temporary, 0o755)
        temporary.rename(path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def require_file(path: Path) -> None:
    """Refuse what is no file to read: UserError."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """A temporary file beside ``path`` that replaces it when the block ends without error.

    Errors: UserError where it is a folder, or the disk is full.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with full_disk_named(path):
            yield temporary
            temporary.chmod(READABLE)
            _sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_text(path: Path) -> str:
    """The text of a small file; UserError for bytes that are not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: byte {error.start + 1} is not UTF-8: convert it to UTF-8"
        ) from error


def read_findings(file: Path) -> dict[str, Any]:
    """What was found before, of a JSON file; nothing where there is none.

    Errors: UserError for a file that holds anything else.
    """
    if not file.is_file():
        return {}
    try:
        found: Any = json.loads(read_text(file))
    except ValueError as error:
        raise UserError(f"{file} is no JSON ({error}): remove it, or name another -o") from error
    if not isinstance(found, dict):
        raise UserError(f"{file} holds no findings: remove it, or name another -o")
    return cast(dict[str, Any], found)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_free(path: Path) -> None:
    """Refuse to write over something that is there, or where nothing can be made."""
    require_room(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path} already exists: choose another folder with -o, or remove it")


def require_writable(file: Path) -> None:
    """Refuse a file that cannot be written or replaced, before what it shall hold is found."""
    if file.is_dir():
        raise UserError(f"{file} is a folder: name a file")
    require_room(file)


def require_room(path: Path) -> None:
    """Refuse what cannot be made where it should stand."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    # What permissions say holds neither for who may do everything nor for every file system.
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise UserError(
            f"{path} cannot be made: {above} is no folder that can be written to"
        ) from error


def require_other(output: Path, source: Path) -> None:
    """Refuse to write over what is read."""
    if output.exists() and source.exists() and output.samefile(source):
        raise UserError(f"{output} is what is read: name another file with -o")


@contextmanager
def full_disk_named(path: Path) -> Generator[None]:
    """Turn a full disk (or quota, or file-size limit) into a sentence that names the path."""
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None) or _number_told(error)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = os.strerror(number)
            raise UserError(f"{path}: {reason}: free some space and run again") from error
        raise


def _number_told(error: Exception) -> int | None:
    """The number of an operating system's error in the words of a library that has its own."""
    if re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        return errno.ENOSPC
    told = re.search(r"os error (\d+)", str(error))
    return int(told[1]) if told else None


def digests(path: Path) -> dict[str, str]:
    """The SHA-256 sums of a file, or of all files of a folder, by name."""
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    found: dict[str, str] = {}
    for file in files:
        with open(file, "rb") as opened:
            found[str(file.relative_to(path.parent))] = hashlib.file_digest(
                opened, "sha256"
            ).hexdigest()
    return found


def sync_tree(folder: Path) -> None:
    """Flush every file of a folder to the disk, readable by all."""
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(READABLE)
            _sync_file(file)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(folder: Path, wait: bool = False) -> Generator[None]:
    """Mark a folder as somebody's; the mark goes with the process, however that ends.

    Errors: OSError when another process holds it, unless its end is to be waited for.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _sync_file(file: Path) -> None:
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
