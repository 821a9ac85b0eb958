"""Files and folders that appear whole or not at all."""

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bertwright.errors import UserError
from bertwright.files.checks import require_free
from bertwright.files.destination import destination, is_stream, open_stream
from bertwright.files.disk import (
    file_mode,
    full_disk_named,
    held,
    sync_file,
    sync_folder,
    sync_tree,
)

MAX_STEM = 50
"""Characters of a file's name in that of its temporary folder: names end at 255 bytes."""


@contextmanager
def atomic_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder beside ``path`` that takes its name when the block ends without
    error.

    What a killed process left of an earlier attempt is removed first. Errors: UserError when
    ``path`` already holds something, or when the disk is full.
    """
    require_free(Path(path))
    target = destination(Path(path))
    with full_disk_named(path), _unfinished(target) as folder:
        yield folder
        sync_tree(folder)
        if target.is_dir():
            folder.chmod(stat.S_IMODE(target.stat().st_mode))
        try:
            folder.rename(target)  # over an empty folder, too
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise UserError(f"{path} was made by another process meanwhile: compare both") from None
        sync_folder(target.parent)


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Yield a temporary file that replaces ``path`` when the block ends without error.

    A link stays, and the file behind it is replaced; a device or a pipe is written to as it is.
    Permissions are those of the replaced file, else the umask decides.
    Errors: UserError where it is a folder, or the disk is full.
    """
    path = Path(path)
    with full_disk_named(path), ExitStack() as stack:
        if is_stream(path):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield folder / path.name
            stream = stack.enter_context(open_stream(path))
            with open(folder / path.name, "rb") as whole:
                shutil.copyfileobj(whole, stream)
            return
        target = destination(path)
        if target.is_dir():
            raise UserError(f"{path} is a folder: name a file")
        temporary = stack.enter_context(_unfinished(target)) / target.name
        yield temporary
        mode = target.stat().st_mode & 0o777 if target.exists() else file_mode(temporary.parent)
        temporary.chmod(mode)
        sync_file(temporary)
        temporary.replace(target)
        sync_folder(target.parent)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _unfinished(target: Path) -> Generator[Path]:
    """Yield a new folder beside a target that this process holds, and remove it at the end; before
    that, remove those that killed processes have left."""
    target.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{target.name[:MAX_STEM]}.unfinished-"
    for name in os.listdir(target.parent):
        if name.startswith(stem) and re.fullmatch("[0-9a-f]{16}", name.removeprefix(stem)):
            with suppress(OSError), held(target.parent / name):
                shutil.rmtree(target.parent / name)
    with ExitStack() as stack:
        folder = _claimed(target.parent / stem, stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _claimed(stem: Path, stack: ExitStack) -> Path:
    """Return a new folder that this process holds: one that was not taken for abandoned between
    its making and its locking."""
    while True:
        folder = Path(f"{stem}{secrets.token_hex(8)}")
        folder.mkdir()
        with suppress(BlockingIOError, FileNotFoundError):
            stack.enter_context(held(folder))
            if folder.exists():
                return folder
