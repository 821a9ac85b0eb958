"""Files and folders written atomically."""

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

from bertwright.core.errors import UserError
from bertwright.core.files.checks import require_new_folder
from bertwright.core.files.destination import is_stream, open_stream, resolve_output
from bertwright.core.files.disk import (
    explain_full_disk,
    file_mode,
    sync_tree,
)
from bertwright.core.operating_system import file_lock, rename_folder, sync_file, sync_folder

MAX_STEM_LENGTH = 50
"""Characters of the target's name in the name of its temporary folder, at most 255 bytes long."""


@contextmanager
def atomic_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder that is renamed to ``path`` if the block succeeds.

    Temporary folders of killed processes are removed first. Errors: UserError if ``path`` is not
    empty, or if the disk is full.
    """
    require_new_folder(Path(path))
    target = resolve_output(Path(path))
    with explain_full_disk(path), _temporary_folder(target) as folder:
        yield folder
        sync_tree(folder)
        if target.is_dir():
            folder.chmod(stat.S_IMODE(target.stat().st_mode))
        try:
            rename_folder(folder, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise UserError(
                f"{path} was created by another process meanwhile: compare both"
            ) from None
        sync_folder(target.parent)


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Yield a temporary file that replaces ``path`` if the block succeeds.

    A symbolic link is kept and its target replaced; devices and pipes are written to directly.
    The new file has the permissions of the replaced one, or else the default (umask).
    Errors: UserError if ``path`` is a folder, or the disk is full.
    """
    path = Path(path)
    with explain_full_disk(path), ExitStack() as stack:
        if is_stream(path):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield folder / path.name
            stream = stack.enter_context(open_stream(path))
            with open(folder / path.name, "rb") as complete:
                shutil.copyfileobj(complete, stream)
            return
        target = resolve_output(path)
        if target.is_dir():
            raise UserError(f"{path} is a folder: name a file")
        temporary = stack.enter_context(_temporary_folder(target)) / target.name
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


def remove_unfinished(target: Path) -> None:
    """Remove the temporary folders of an output that killed processes left."""
    stem = _temporary_stem(target)
    for name in os.listdir(target.parent):
        if name.startswith(stem) and re.fullmatch("[0-9a-f]{16}", name.removeprefix(stem)):
            with suppress(OSError), file_lock(target.parent / name):
                shutil.rmtree(target.parent / name)


def _temporary_stem(target: Path) -> str:
    return f".{target.name[:MAX_STEM_LENGTH]}.unfinished-"


@contextmanager
def _temporary_folder(target: Path) -> Generator[Path]:
    """Yield a new locked folder next to a target, and remove it at the end.

    Folders left by killed processes are removed first.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(target)
    with ExitStack() as stack:
        folder = _create_locked_folder(target.parent / _temporary_stem(target), stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _create_locked_folder(stem: Path, stack: ExitStack) -> Path:
    """Return a new folder that this process has locked.

    Another process may remove a folder before it is locked; then a new one is created.
    """
    while True:
        folder = Path(f"{stem}{secrets.token_hex(8)}")
        folder.mkdir()
        with suppress(BlockingIOError, FileNotFoundError):
            stack.enter_context(file_lock(folder))
            if folder.exists():
                return folder
