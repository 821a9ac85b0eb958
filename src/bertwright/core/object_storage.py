"""Files in object storage, such as ``s3://bucket/text``, through fsspec.

A read that breaks off continues where it ended, as long as each connection brings some bytes.
"""

import io
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.messages import first_line

Value = TypeVar("Value")

MAX_ATTEMPTS = 5
"""Number of attempts in a row that bring nothing before a file is given up."""

WAIT_SECONDS = 0.5
"""Seconds before the second attempt; each further wait is twice as long."""

BLOCK_BYTES = 1 << 20

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+")
_LIBRARIES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
_FINAL_ERRORS = (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError)
"""Errors that another attempt would repeat."""


def storage_url(path: str | Path) -> str | None:
    """Return the URL of a path in object storage; None for a local path.

    A URL that was a ``Path`` has lost a slash, which is restored.
    """
    match = _URL.match(str(path))
    if match is None:
        return None
    root = "/" if match[1] == "file" else ""
    return f"{match[1]}://{root}{str(path)[match.end() :]}"


def join_url(url: str, name: str) -> str:
    """Return the URL of a file in a folder."""
    return f"{url.rstrip('/')}/{name}"


def open_storage(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Errors: UserError if there is no such kind of storage, or its library is not installed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtra("fsspec", "storage") from error
    protocol = url.partition("://")[0]
    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(url))
    except ImportError as error:
        library = _LIBRARIES.get(protocol)
        if library is not None:
            raise MissingExtra(library, "storage") from error
        raise UserError(f"{url} needs another library: {first_line(error)}") from None
    except ValueError:
        raise UserError(
            f"{url}: there is no storage {protocol}:// (known are s3, gs, http, https and those of "
            f"fsspec)"
        ) from None


def find_files(url: str) -> list[str]:
    """Return the URLs of a file, of all files in a folder, or of a pattern, sorted.

    Errors: UserError if there is none.
    """
    storage, path = open_storage(url)

    def search() -> list[str]:
        if any(letter in path for letter in "*?["):
            return storage.glob(path)
        return [path] if storage.isfile(path) else storage.find(path)

    with explain_storage_errors(url):
        names = sorted(retry(search))
    if not names:
        raise UserError(f"{url}: there is no such file, folder or bucket")
    return [str(storage_url(storage.unstrip_protocol(name))) for name in names]


def storage_version(url: str) -> str:
    """Return a string that changes with the content of a file, as far as the storage knows."""
    storage, path = open_storage(url)
    with explain_storage_errors(url):
        return str(retry(lambda: storage.ukey(path)))


def require_storage_file(url: str, message: str) -> None:
    """Raise UserError with a message if there is no file at a URL."""
    storage, path = open_storage(url)
    with explain_storage_errors(url):
        if not retry(lambda: storage.isfile(path)):
            raise UserError(message)


def retry(attempt: Callable[[], Value]) -> Value:
    """Return the result of the first attempt that succeeds, of several."""
    for number in range(MAX_ATTEMPTS - 1):
        try:
            return attempt()
        except _FINAL_ERRORS:
            raise
        except Exception:
            time.sleep(WAIT_SECONDS * 2**number)
    return attempt()


@contextmanager
def explain_storage_errors(url: str) -> Generator[None]:
    """Raise UserError for an error of a storage library."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{url}: there is no such file, folder or bucket") from None
    except PermissionError as error:
        raise UserError(
            f"{url}: access is denied ({first_line(error)}): set the credentials of this storage"
        ) from None
    except Exception as error:
        raise UserError(
            f"{url} cannot be reached ({first_line(error)}): check the connection and run again"
        ) from error


class StorageReader(io.RawIOBase):
    """A file in object storage, read from start to end; a broken connection is opened again."""

    def __init__(self, url: str, offset: int = 0) -> None:
        self._url = url
        self._storage, self._path = open_storage(url)
        self._stream: Any = None
        self._offset = offset

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most ``size``; b"" at the end."""
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        with explain_storage_errors(self._url):
            block = retry(lambda: self._read_once(size))
        self._offset += len(block)
        return block

    def _read_once(self, size: int) -> bytes:
        try:
            if self._stream is None:
                self._stream = self._storage.open(self._path, "rb")
                self._skip(self._offset)
            block = self._stream.read(size)
            num_bytes = getattr(self._stream, "size", None)
            if not block and size and num_bytes is not None and self._offset < num_bytes:
                raise OSError(f"it ended after {self._offset:,} of {num_bytes:,} bytes")
            return block
        except Exception:
            self._stream = None
            raise

    def _skip(self, num_bytes: int) -> None:
        try:
            self._stream.seek(num_bytes)
        except ValueError:  # a server that sends a file only whole
            while num_bytes > 0 and (block := self._stream.read(min(num_bytes, BLOCK_BYTES))):
                num_bytes -= len(block)

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        super().close()


class StorageWriter(io.RawIOBase):
    """A file that is uploaded while it is written, and exists when it is closed."""

    def __init__(self, url: str) -> None:
        self._url = url
        storage, path = open_storage(url)
        with explain_storage_errors(url):
            self._stream: Any = storage.open(path, "wb")

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes."""
        with explain_storage_errors(self._url):
            return self._stream.write(data)

    def close(self) -> None:
        """Finish the upload."""
        if not self.closed:
            with explain_storage_errors(self._url):
                self._stream.close()
        super().close()


def read_blocks(url: str, offset: int = 0) -> Iterator[bytes]:
    """Yield the content of a file from an offset on.

    Errors: UserError if the file does not exist, or the connection does not come back.
    """
    with StorageReader(url, offset) as reader:
        yield from iter(lambda: reader.read(BLOCK_BYTES), b"")


def read_file(url: str) -> bytes:
    """Return the content of a small file."""
    return b"".join(read_blocks(url))
