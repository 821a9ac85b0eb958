"""The disk: full or not, flushed, and folders that one process holds."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bertwright.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a quota and a limit on the size of a file."""


@contextmanager
def full_disk_named(path: Path) -> Generator[None]:
    """Turn a full disk (or quota, or file-size limit) into a sentence that names the path."""
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None) or _number_in(error)
        if number in FULL:
            # Named as it will be called: it may stand in a folder that is not finished.
            name = re.sub(r"(^|/)\.([^/]+)\.unfinished-[0-9a-f]{16}", r"\1\2", str(path))
            raise UserError(
                f"{name}: {os.strerror(number)}: free some space and run again"
            ) from error
        raise


def _number_in(error: Exception) -> int | None:
    """Return the number of an operating system's error that a library puts in its own words."""
    if re.fullmatch(r"\d+ requested and \d+ written", str(error)):
        return errno.ENOSPC
    number = re.search(r"os error (\d+)", str(error))
    return int(number[1]) if number else None


def sync_tree(folder: Path) -> None:
    """Flush every file of a folder to the disk, as readable as the folder is: some libraries write
    files that only their owner can read."""
    mode = file_mode(folder)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(mode)
            sync_file(file)
    sync_folder(folder)


def file_mode(folder: Path) -> int:
    """Return the permissions of files in a new folder, which the umask has given to it."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o666


def sync_file(file: Path) -> None:
    """Flush the content of a file to the disk."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(path: Path, wait: bool = False) -> Generator[None]:
    """Lock a file or folder for this process; the lock goes with the process, however that ends.

    Errors: BlockingIOError when another process holds it, unless its end is to be waited for.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


@contextmanager
def held_alone(path: Path) -> Generator[None]:
    """Lock what is written to; UserError where another process writes to it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path))
        except BlockingIOError:
            raise UserError(
                f"another process is writing to {path}: wait for it, or choose another with -o"
            ) from None
        yield
