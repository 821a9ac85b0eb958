"""Public data sets fetched: resumed where they broke off, checked, unpacked.

What is on the way stands in ``NAME.part``; a file has its own name only once its digest is right.
The digests of a folder stand in its ``SHA256SUMS`` (which ``sha256sum -c`` reads), so a file whose
digest nobody has published is at least the same at every later run.
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

from bertwright.errors import UserError
from bertwright.files import full_disk_named, held_alone, sync_folder, write_text
from bertwright.text.public_sets import PublicSet, RemoteFile

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a file, how many of its bytes are there, and how many there will be."""

DIGESTS = "SHA256SUMS"

_BLOCK_BYTES = 1 << 18
_PATIENCE_SECONDS = 30
# Some hosts (that of WikiText) turn Python's own name away.
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; bertwright)"}
_RANGE_NOT_SATISFIABLE = 416
_UNPACKING = ".unpacking-"


def fetch(
    wanted: PublicSet, out: Path, progress: Progress = lambda name, done, total: None
) -> list[Path]:
    """Fetch the files of a data set into a folder, check them, unpack archives beside them.

    Files that are there are checked and not fetched again. Returns the files, in the order of the
    table.

    Errors: UserError when a host cannot be reached or breaks off, when a digest is wrong (what was
    fetched is removed then), when the disk is full.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"get: {out} cannot be made a folder: {error.strerror}") from None
    with full_disk_named(out), held_alone(out):
        for abandoned in out.glob(f"{_UNPACKING}????????"):
            shutil.rmtree(abandoned)
        for file in wanted.files:
            known = _recorded(out)
            digest = _checked(file, out, file.sha256 or known.get(file.name), progress)
            if known.get(file.name) != digest:
                _record(out, known | {file.name: digest})
            if file.name.endswith(".zip"):
                _unpack(out / file.name)
    return [out / file.name for file in wanted.files]


def _checked(file: RemoteFile, out: Path, expected: str | None, progress: Progress) -> str:
    """The digest of a file, which is fetched if it is not there."""
    path = out / file.name
    if path.exists():
        digest = _digest(path)
        if expected not in (None, digest):
            raise UserError(
                f"get: {path} has the SHA-256 {digest} and not {expected}: remove it and run again"
            )
        return digest
    part = out / f"{file.name}.part"
    _fetch_from_any(file, part, progress)
    digest = _digest(part)
    if expected not in (None, digest):
        part.unlink()
        raise UserError(
            f"get: what {file.urls[0]} holds has the SHA-256 {digest} and not {expected}, so it "
            "was removed: run again, and if that gives the same the file has changed at its source"
        )
    part.replace(path)
    sync_folder(out)
    return digest


def _fetch_from_any(file: RemoteFile, part: Path, progress: Progress) -> None:
    """Fetch a file from the first of its URLs that gives it."""
    problems: list[UserError] = []
    for url in file.urls:
        try:
            _fetch(url, file, part, progress)
            return
        except UserError as error:
            problems.append(error)
    raise problems[0]


def _fetch(url: str, file: RemoteFile, part: Path, progress: Progress) -> None:
    """Fetch a file, going on where the connection breaks as long as every attempt brings more."""
    if file.sha256 is None:
        part.unlink(missing_ok=True)  # an earlier run's may be of another version of the file
    while True:
        done = part.stat().st_size if part.exists() else 0
        if _attempt(url, file, part, done, progress):
            return
        there = part.stat().st_size
        if there <= done:
            raise UserError(
                f"get: {_host(url)} broke off after {there:,} bytes of {url}: run again to go on"
            )


def _attempt(url: str, file: RemoteFile, part: Path, done: int, progress: Progress) -> bool:
    """One connection: whether the file is whole after it."""
    wanted = {"Range": f"bytes={done}-"} if done else {}
    try:
        response = cast(
            Response, urlopen(Request(url, headers=_HEADERS | wanted), timeout=_PATIENCE_SECONDS)
        )
    except HTTPError as error:
        with error:
            if error.code != _RANGE_NOT_SATISFIABLE or not done:
                raise UserError(
                    f"get: {_host(url)} answers {error.code} {error.reason}: {_by_hand(url, part)}"
                ) from None
            if error.headers.get("Content-Range", "") == f"bytes */{done}":
                return True  # nothing is missing
        part.unlink()
        return _attempt(url, file, part, 0, progress)
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise UserError(
            f"get: cannot reach {_host(url)} ({reason}): {_by_hand(url, part)}"
        ) from None
    with response:
        return _write(response, file, part, done, progress)


def _write(response: Response, file: RemoteFile, part: Path, done: int, progress: Progress) -> bool:
    """Write what a response brings: whether it brought all that it promised."""
    resumed = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
    position = done if resumed else 0
    length = response.headers.get("Content-Length")
    total = file.num_bytes if length is None else position + int(length)
    with open(part, "ab" if resumed else "wb") as written:
        progress(file.name, position, total)
        while block := _read(response):
            position += written.write(block)
            progress(file.name, position, total)
        written.flush()
        os.fsync(written.fileno())
    return block is not None and (total is None or position >= total)


def _read(response: Response) -> bytes | None:
    """The next block, nothing at the end, None where the connection broke."""
    try:
        return response.read(_BLOCK_BYTES)
    except (OSError, HTTPException):
        return None


def _unpack(archive: Path) -> None:
    """Unpack a zip archive beside itself; what is there already is left as it is."""
    out = archive.parent
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if not name.startswith("__MACOSX")]
            new = {top for name in names if not (out / (top := name.partition("/")[0])).exists()}
            if not new:
                return
            with tempfile.TemporaryDirectory(prefix=_UNPACKING, dir=out) as unpacked:
                opened.extractall(unpacked, names)
                for top in sorted(new):
                    (Path(unpacked) / top).rename(out / top)
    except zipfile.BadZipFile as error:
        raise UserError(f"get: {archive} is no zip archive: remove it and run again") from error


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recorded(out: Path) -> dict[str, str]:
    """Digests by name, as an earlier run wrote them down."""
    if not (out / DIGESTS).exists():
        return {}
    lines = (line.split(maxsplit=1) for line in (out / DIGESTS).read_text("utf-8").splitlines())
    # sha256sum marks with a star what it has read as binary.
    return {known[1].removeprefix("*"): known[0] for known in lines if len(known) == 2}


def _record(out: Path, digests: dict[str, str]) -> None:
    lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    write_text(out / DIGESTS, "".join(lines))


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _by_hand(url: str, part: Path) -> str:
    return f"download {url} yourself and put it in {part.parent} as {part.stem}"
