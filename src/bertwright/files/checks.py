"""Refuse paths before anything is computed: outputs that cannot be made, inputs that are none."""

import os
import tempfile
from pathlib import Path

from bertwright.errors import UserError
from bertwright.files.destination import destination, is_stream


def require_file(path: Path) -> None:
    """Refuse what is no file to read: UserError."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    if not path.exists():
        raise UserError(f"{path}: there is no such file")
    if not path.is_file():
        raise UserError(f"{path} is no regular file: copy what it gives into one")


def require_free(path: Path) -> None:
    """Refuse to write over something that is there, or where nothing can be made."""
    require_room(destination(path))
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path} already exists: choose another folder with -o, or remove it")


def require_writable(file: Path) -> None:
    """Refuse a file that cannot be written or replaced, before its content is computed."""
    if is_stream(file):
        if not os.access(file, os.W_OK):
            raise UserError(f"{file} cannot be written to: name another with -o")
        return
    if file.is_dir():
        raise UserError(f"{file} is a folder: name a file")
    require_room(destination(file))


def require_room(path: Path) -> None:
    """Refuse a path at which nothing can be made."""
    path = path.absolute()
    above = next((folder for folder in path.parents if folder.exists()), path)
    # What permissions say holds neither for who may do everything nor for every file system.
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise UserError(
            f"{path} cannot be made: {above} is no folder that can be written to"
        ) from error


def require_other(output: Path, source: Path) -> None:
    """Refuse to write over what is read; a device may be both."""
    both = output.exists() and source.exists() and not is_stream(output)
    if both and output.samefile(source):
        raise UserError(f"{output} is what is read: name another file with -o")
