"""Checks of input and output paths before anything is computed."""

import os
import tempfile
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.core.files.destination import is_stream, resolve_output
from bertwright.core.object_storage import storage_url


def require_file(path: Path) -> None:
    """Raise UserError unless a path is a regular file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    if not path.exists():
        raise UserError(f"{path}: there is no such file")
    if not path.is_file():
        raise UserError(f"{path} is not a regular file: copy its content into one")


def require_new_folder(path: Path) -> None:
    """Raise UserError if a folder is not empty, is the current one or cannot be created."""
    require_local(path)
    require_creatable(resolve_output(path))
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path} already exists: choose another folder, or remove it")
    if path.exists() and path.samefile(Path.cwd()):
        # It would be replaced, and this process would stay in the removed one.
        raise UserError(f"{path} is the current folder: name a new one in it, or leave it first")


def require_local(path: Path) -> None:
    """Raise UserError if a path is a URL."""
    if (url := storage_url(path)) is not None:
        raise UserError(
            f"{url} is in object storage, to which only 'bertwright prepare' writes texts: choose "
            f"a local path, and copy it"
        )


def require_writable(file: Path) -> None:
    """Raise UserError if a file cannot be written or replaced."""
    require_local(file)
    if is_stream(file):
        if not os.access(file, os.W_OK):
            raise UserError(f"{file} cannot be written to: choose another file")
        return
    if file.is_dir():
        raise UserError(f"{file} is a folder: name a file")
    require_creatable(resolve_output(file))


def require_writable_folder(folder: Path) -> None:
    """Raise UserError if no files can be written into a folder, which may not exist yet."""
    require_local(folder)
    target = resolve_output(folder)
    if target.is_dir():
        _require_new_file(target, target)
    elif target.exists():
        raise UserError(f"{folder} is a file: name a folder")
    else:
        require_creatable(target)


def require_creatable(path: Path) -> None:
    """Raise UserError if nothing can be created at a path."""
    path = path.absolute()
    _require_new_file(path, next((folder for folder in path.parents if folder.exists()), path))


def _require_new_file(path: Path, parent: Path) -> None:
    """Raise UserError about ``path`` if no file can be created in ``parent``."""
    # Permission bits do not hold for root, nor on every file system.
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be created: {parent} is not a writable folder") from error


def require_different_file(output: Path, source: Path) -> None:
    """Raise UserError if an output would replace the input; a device may be both."""
    both_exist = output.exists() and source.exists() and not is_stream(output)
    if both_exist and output.samefile(source):
        raise UserError(f"{output} is the input: choose another output file")
