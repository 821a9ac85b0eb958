"""Download of public data sets, with resumption, checksums and unpacking.

A partial file is called ``NAME.part`` and renamed once its digest is verified. Digests are stored
in the folder's ``SHA256SUMS`` (for ``sha256sum -c``), so later runs also detect changes to files
without a published digest.
"""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from http.client import HTTPException
from http.client import HTTPResponse as Response
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from bertwright.core.errors import UserError
from bertwright.core.files import explain_full_disk, output_lock, sync_folder, write_text
from bertwright.data.public_datasets import PublicDataset, RemoteFile

ProgressCallback = Callable[[str, int, int | None], None]
"""Callback with a file name, the bytes downloaded so far, and the total bytes if known."""

DIGESTS_FILE = "SHA256SUMS"

_BLOCK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30
# Some hosts, such as WikiText's, refuse Python's default user agent.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; bertwright)"}
_RANGE_NOT_SATISFIABLE = 416
_UNPACK_PREFIX = ".unpacking-"


def fetch(
    dataset: PublicDataset,
    output: Path,
    progress: ProgressCallback = lambda name, done, total: None,
) -> list[Path]:
    """Download the files of a data set into a folder, verify them and unpack archives.

    Existing files are verified and not downloaded again. Return the files in the order of the
    table of data sets.

    Errors: UserError if a host is unreachable, the connection breaks, a digest is wrong (the file
    is then removed), or the disk is full.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"get: the folder {output} cannot be created: {error.strerror}") from None
    with explain_full_disk(output), output_lock(output):
        for leftover in output.glob(f"{_UNPACK_PREFIX}????????"):
            shutil.rmtree(leftover)
        for file in dataset.files:
            stored = _read_digests(output)
            digest = _fetch_and_verify(file, output, file.sha256 or stored.get(file.name), progress)
            if stored.get(file.name) != digest:
                _write_digests(output, stored | {file.name: digest})
            if file.name.endswith(".zip"):
                _unpack(output / file.name)
    return [output / file.name for file in dataset.files]


def _fetch_and_verify(
    file: RemoteFile, output: Path, expected_digest: str | None, progress: ProgressCallback
) -> str:
    """Return the digest of a file, downloading the file if it is missing."""
    path = output / file.name
    if path.exists():
        digest = _digest(path)
        if expected_digest not in (None, digest):
            raise UserError(
                f"get: {path} has the SHA-256 {digest} and not {expected_digest}: remove it and "
                f"run again"
            )
        return digest
    partial_path = output / f"{file.name}.part"
    _fetch_from_any(file, partial_path, progress)
    digest = _digest(partial_path)
    if expected_digest not in (None, digest):
        partial_path.unlink()
        raise UserError(
            f"get: the file at {file.urls[0]} has the SHA-256 {digest} and not {expected_digest}, "
            "so it was removed: run again; if the result is the same, the file has changed there"
        )
    partial_path.replace(path)
    sync_folder(output)
    return digest


def _fetch_from_any(file: RemoteFile, partial_path: Path, progress: ProgressCallback) -> None:
    """Download a file from the first of its URLs that works."""
    problems: list[UserError] = []
    for url in file.urls:
        try:
            _fetch(url, file, partial_path, progress)
            return
        except UserError as error:
            problems.append(error)
    raise problems[0]


def _fetch(url: str, file: RemoteFile, partial_path: Path, progress: ProgressCallback) -> None:
    """Download a file, resuming after interruptions as long as each attempt makes progress."""
    if file.sha256 is None:  # an earlier run's partial file may be from another version
        partial_path.unlink(missing_ok=True)
    while True:
        offset = partial_path.stat().st_size if partial_path.exists() else 0
        if _attempt(url, file, partial_path, offset, progress):
            return
        if partial_path.exists() and (size := partial_path.stat().st_size) <= offset:
            raise UserError(
                f"get: {_server_name(url)} closed the connection after {size:,} bytes of {url}: "
                f"run again to continue"
            )


def _attempt(
    url: str, file: RemoteFile, partial_path: Path, offset: int, progress: ProgressCallback
) -> bool:
    """Download over one connection; return whether the file is complete.

    A partial file that the server cannot continue is removed.
    """
    headers = _HEADERS | ({"Range": f"bytes={offset}-"} if offset else {})
    try:
        response = cast(Response, urlopen(Request(url, headers=headers), timeout=_TIMEOUT_SECONDS))
    except HTTPError as error:
        with error:
            if error.code != _RANGE_NOT_SATISFIABLE or not offset:
                raise UserError(
                    f"get: {_server_name(url)} returns {error.code} {error.reason}: "
                    f"{_manual_remedy(url, partial_path)}"
                ) from None
            if error.headers.get("Content-Range", "") == f"bytes */{offset}":
                return True
        partial_path.unlink()  # longer than the file, or from another version
        return False
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise UserError(
            f"get: cannot reach {_server_name(url)} ({reason}): {_manual_remedy(url, partial_path)}"
        ) from None
    with response:
        return _write(response, file, partial_path, offset, progress)


def _write(
    response: Response,
    file: RemoteFile,
    partial_path: Path,
    offset: int,
    progress: ProgressCallback,
) -> bool:
    """Write the body of a response; return whether it is complete."""
    resumed = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
    position = offset if resumed else 0
    length = response.headers.get("Content-Length")
    total = file.num_bytes if length is None else position + int(length)
    with open(partial_path, "ab" if resumed else "wb") as written:
        progress(file.name, position, total)
        while block := _read_block(response):
            position += written.write(block)
            progress(file.name, position, total)
        written.flush()
        os.fsync(written.fileno())
    return block is not None and (total is None or position >= total)


def _read_block(response: Response) -> bytes | None:
    """Return the next block; b"" at the end; None if the connection broke."""
    try:
        return response.read(_BLOCK_BYTES)
    except (OSError, HTTPException):
        return None


def _unpack(archive: Path) -> None:
    """Unpack a zip archive next to it; existing files are kept."""
    folder = archive.parent
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if not name.startswith("__MACOSX")]
            new = {top for name in names if not (folder / (top := name.partition("/")[0])).exists()}
            if not new:
                return
            with tempfile.TemporaryDirectory(prefix=_UNPACK_PREFIX, dir=folder) as unpacked:
                opened.extractall(unpacked, names)
                for top in sorted(new):
                    (Path(unpacked) / top).rename(folder / top)
    except zipfile.BadZipFile as error:
        raise UserError(f"get: {archive} is not a zip archive: remove it and run again") from error


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_digests(output: Path) -> dict[str, str]:
    """Return the digests by file name that earlier runs stored."""
    if not (output / DIGESTS_FILE).exists():
        return {}
    lines = (
        line.split(maxsplit=1) for line in (output / DIGESTS_FILE).read_text("utf-8").splitlines()
    )
    # sha256sum marks files read as binary with a star.
    return {fields[1].removeprefix("*"): fields[0] for fields in lines if len(fields) == 2}


def _write_digests(output: Path, digests: dict[str, str]) -> None:
    lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    write_text(output / DIGESTS_FILE, "".join(lines))


def _server_name(url: str) -> str:
    return urlsplit(url).netloc


def _manual_remedy(url: str, partial_path: Path) -> str:
    return f"download {url} yourself and put it in {partial_path.parent} as {partial_path.stem}"
