"""Full disks, flushing to disk, and locks of outputs."""

import errno
import os
import re
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.core.operating_system import file_lock, sync_file, sync_folder

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers: full disk, exceeded quota, exceeded file-size limit."""


@contextmanager
def explain_full_disk(path: Path) -> Generator[None]:
    """Raise UserError naming the path if the disk, quota or file-size limit is full."""
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None) or _errno_in_message(error)
        if number in DISK_FULL_ERRNOS:
            # Use the final path: the error may name a temporary folder.
            name = re.sub(r"(^|/)\.([^/]+)\.unfinished-[0-9a-f]{16}", r"\1\2", str(path))
            raise UserError(
                f"{name}: {os.strerror(number)}: free some space and run again"
            ) from error
        raise


def _errno_in_message(error: Exception) -> int | None:
    """Return the errno that a library states in its message; None if there is none."""
    if re.fullmatch(r"\d+ requested and \d+ written|Failed to serialize into stream", str(error)):
        return errno.ENOSPC  # NumPy and usearch state no number
    number = re.search(r"os error (\d+)", str(error))
    return int(number[1]) if number else None


def sync_tree(folder: Path) -> None:
    """Flush every file of a folder to the disk, and give it the folder's permissions.

    Some libraries write files that only their owner can read.
    """
    mode = file_mode(folder)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(mode)
            sync_file(file)
    sync_folder(folder)


def file_mode(folder: Path) -> int:
    """Return the permissions of new files in a folder, as set by the umask."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o666


@contextmanager
def output_lock(path: Path) -> Generator[None]:
    """Lock an output; UserError if another process writes to it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path))
        except BlockingIOError:
            raise UserError(
                f"another process is writing to {path}: wait for it, or choose another path"
            ) from None
        yield
