"""Resolution of output paths: links, devices and pipes."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bertwright.core.errors import UserError

MAX_LINKS = 40
"""Number of symbolic links that the kernel follows at most in one path."""


def resolve_output(path: Path) -> Path:
    """Return a path with symbolic links resolved.

    Errors: UserError for a link that leads back to itself.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise UserError(f"{path} is a link that leads back to itself: choose another path")
    return target


def is_stream(path: Path) -> bool:
    """Return whether a path is a device, a pipe or an open file (``/dev/stdout``).

    These are written to directly; every other file is replaced.
    """
    if _file_descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def open_stream(path: Path) -> Generator[BinaryIO]:
    """Open a device, a pipe or an open file for writing.

    Errors: UserError for a block device.
    """
    descriptor = _file_descriptor(path)
    if descriptor is None and stat.S_ISBLK(os.stat(path).st_mode):
        raise UserError(f"{path} is a disk: name a file")
    # Share the open file, so that later output follows this one.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as stream:
        yield stream


def _file_descriptor(path: Path) -> int | None:
    """Return the descriptor of this process's open file that a path names; None otherwise."""
    for _ in range(MAX_LINKS):
        folder = os.path.realpath(path.parent)
        if folder in (f"/proc/{os.getpid()}/fd", "/dev/fd") and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder, os.readlink(path))
    return None
