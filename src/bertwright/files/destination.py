"""Where an output goes: links are followed, devices and pipes are written to as they are."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bertwright.errors import UserError

MAX_LINKS = 40
"""Symbolic links that the kernel follows in one path."""


def destination(path: Path) -> Path:
    """Return the file or folder behind a path, links followed: a link stays, its target is written.

    Errors: UserError for a link that leads back to itself.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise UserError(f"{path} is a link that leads back to itself: name another with -o")
    return target


def is_stream(path: Path) -> bool:
    """Return whether a path names a device, a pipe or an open file (``/dev/stdout``), which is
    written to as it is; every other file is replaced whole."""
    if _descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def open_stream(path: Path) -> Generator[BinaryIO]:
    """Open a device, a pipe or an open file for writing.

    Errors: UserError for a disk, which holds files of its own.
    """
    descriptor = _descriptor(path)
    if descriptor is None and stat.S_ISBLK(os.stat(path).st_mode):
        raise UserError(f"{path} is a disk: name a file")
    # The same open file, so that what is printed later stands behind this.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as stream:
        yield stream


def _descriptor(path: Path) -> int | None:
    """Return the number of the open file of this process that a path names, None for others."""
    for _ in range(MAX_LINKS):
        folder = os.path.realpath(path.parent)
        if folder in (f"/proc/{os.getpid()}/fd", "/dev/fd") and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = Path(folder, os.readlink(path))
    return None
