"""Data folders in object storage.

Shards are memory-mapped, as batches read them in random order, so a data folder is copied to the
local disk when it is opened, once for all processes and runs: every file is compared with its
checksum in the manifest, and a copy that broke off is continued. When a new copy does not fit into
``BERTWRIGHT_DATA_GIGABYTES`` (or on the disk), copies that were not used for the longest time are
removed, broken-off ones too, but none that a process has open.

A data folder is written without a copy: shards are uploaded while they are made, and the manifest,
without which a folder is no data, comes last.
"""

import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, cast

from bertwright.core.cache_folder import cache_folder
from bertwright.core.errors import UserError
from bertwright.core.files import SharedLock, explain_full_disk, file_lock
from bertwright.core.object_storage import (
    StorageWriter,
    explain_storage_errors,
    join_url,
    open_storage,
    read_blocks,
    read_file,
    require_storage_file,
)
from bertwright.data.shards.manifest import MANIFEST, DatasetManifest, FileInfo, read_manifest
from bertwright.data.tokenization.tokenizer import TOKENIZER_INFO_FILE

REPORT_FILE = "report.json"
LIMIT_VARIABLE = "BERTWRIGHT_DATA_GIGABYTES"
COMPLETE = ".complete"
"""Empty file in a complete copy, whose time is that of its last use."""


def local_copy(url: str, manifest: DatasetManifest) -> tuple[Path, SharedLock]:
    """Return a local folder with the data folder at a URL, copied unless it already is.

    It is not removed by other processes as long as the lock exists.

    Errors: UserError if a file is missing or damaged, or the disk is too small.
    """
    copies = cache_folder() / "data"
    folder = copies / manifest.hash[:32]
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder, wait=True):  # other processes of a run wait for the copy
        if not (folder / COMPLETE).exists():
            _make_room(copies, folder, manifest)
            with explain_full_disk(folder):
                for name, info in manifest.files.items():
                    _copy_file(join_url(url, name), folder / name, info)
                for name in (TOKENIZER_INFO_FILE, REPORT_FILE, MANIFEST):
                    (folder / name).write_bytes(read_file(join_url(url, name)))
        (folder / COMPLETE).touch()
        return folder, SharedLock(folder / COMPLETE)


def remote_manifest(url: str) -> DatasetManifest:
    """Return the manifest of the data folder at a URL.

    Errors: UserError if there is no data.
    """
    require_storage_file(
        join_url(url, MANIFEST),
        f"{url} holds no prepared data (no {MANIFEST}, or no such bucket): create it with "
        f"'bertwright prepare TEXT... -o {url} --tokenizer DIR'",
    )
    with TemporaryDirectory() as folder:
        file = Path(folder) / MANIFEST
        file.write_bytes(read_file(join_url(url, MANIFEST)))
        return read_manifest(file, join_url(url, MANIFEST))


def _copy_file(url: str, path: Path, expected: FileInfo) -> None:
    """Copy a file, or the rest of it, and compare it with its checksum."""
    offset = path.stat().st_size if path.exists() else 0
    if offset < expected.bytes or not path.exists():
        with open(path, "ab") as copied:
            for block in read_blocks(url, offset):
                copied.write(block)
    with open(path, "rb") as copied:
        digest = file_digest(copied, "sha256").hexdigest()
    if digest != expected.sha256:
        path.unlink()
        raise UserError(
            f"{url} is damaged (its checksum differs): run again; if it stays, prepare the data "
            f"again"
        )


def _make_room(copies: Path, folder: Path, manifest: DatasetManifest) -> None:
    """Remove copies, least recently used first, until a new one fits.

    Errors: UserError if it does not fit even then.
    """
    num_bytes = sum(file.bytes for file in manifest.files.values()) - _size(folder)
    limit = _limit_bytes()
    others = [path for path in copies.iterdir() if path != folder]
    others.sort(key=_last_use)
    while (free := _free_bytes(copies, limit)) < num_bytes and others:
        with suppress(BlockingIOError):
            _remove_unused(others.pop(0))
    if free < num_bytes:
        raise UserError(
            f"a local copy of the data needs {num_bytes / 1e9:,.1f} GB, and {copies} has room for "
            f"{max(free, 0) / 1e9:,.1f} GB: set XDG_CACHE_HOME to a larger disk, or raise "
            f"{LIMIT_VARIABLE}"
        )


def _remove_unused(copy: Path) -> None:
    """Remove a copy; BlockingIOError if it is being made or a process has it open."""
    complete = copy / COMPLETE
    with file_lock(copy), file_lock(complete) if complete.exists() else nullcontext():
        shutil.rmtree(copy)


def _last_use(copy: Path) -> float:
    """Return the time of the last use of a copy, or the start of one that broke off."""
    complete = copy / COMPLETE
    return (complete if complete.exists() else copy).stat().st_mtime


def _limit_bytes() -> float:
    text = os.environ.get(LIMIT_VARIABLE, "inf")
    try:
        return float(text) * 1e9
    except ValueError:
        raise UserError(f"{LIMIT_VARIABLE} is {text!r}, not a number of gigabytes") from None


def _free_bytes(copies: Path, limit: float) -> float:
    return min(limit - _size(copies), shutil.disk_usage(copies).free)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class RemoteOutput:
    """A data folder that is being written to object storage.

    ``folder`` is a local folder for the small files, which are uploaded at the end.
    """

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.url, self.folder = url, folder
        self._stack = stack

    def open_shard(self, name: str) -> BinaryIO:
        """Open a file that is uploaded while it is written."""
        writer = self._stack.enter_context(StorageWriter(join_url(self.url, name)))
        return cast(BinaryIO, writer)


@contextmanager
def remote_output(url: str) -> Generator[RemoteOutput]:
    """Yield a data folder to write; it is removed if the block fails.

    Errors: UserError if the folder is not empty, or the storage cannot be written to.
    """
    storage, path = open_storage(url)
    with explain_storage_errors(url):
        if storage.exists(path) and storage.find(path):
            raise UserError(f"{url} already exists: choose another folder, or remove it")
    try:
        with TemporaryDirectory() as folder:
            with ExitStack() as stack:
                with explain_storage_errors(url):
                    storage.makedirs(path, exist_ok=True)
                yield RemoteOutput(url, Path(folder), stack)
            for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == MANIFEST):
                with StorageWriter(join_url(url, file.name)) as writer:
                    writer.write(file.read_bytes())
    except BaseException:
        with suppress(Exception):
            storage.rm(path, recursive=True)
        raise
