"""What differs between operating systems; only this module uses what some of them lack.

Linux is what the tests run on. On macOS everything here exists, too. On Windows folders cannot be
opened, so they are locked by a file beside them and not flushed.
"""

import ctypes
import errno
import os
import signal
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:
    fcntl = None

IS_WINDOWS = os.name == "nt"

_LOCK_SECONDS = 0.1
"""Seconds between two attempts to lock a file, where the system cannot wait."""


@contextmanager
def file_lock(path: Path, wait: bool = False) -> Generator[None]:
    """Lock a file or folder; the lock ends with the process.

    Errors: BlockingIOError if another process holds the lock, unless ``wait``.
    """
    if fcntl is None:
        with _lock_hidden_file(path, wait):
            yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


class SharedLock:
    """A lock on a file that several objects can hold, but not while :func:`file_lock` has it.

    It ends with the object. It does nothing where the system has no such locks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if fcntl is not None:
            descriptor = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)

    def __reduce__(self) -> tuple[type["SharedLock"], tuple[Path]]:
        return SharedLock, (self._path,)


@contextmanager
def _lock_hidden_file(path: Path, wait: bool) -> Generator[None]:
    """Lock the first byte of a hidden file beside a path, which need not be opened itself."""
    import msvcrt

    system: Any = msvcrt
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    lock_file = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT)
    try:
        while True:
            try:
                system.locking(descriptor, system.LK_NBLCK, 1)
                break
            except OSError:
                if not wait:
                    raise BlockingIOError(errno.EAGAIN, "another process holds the lock") from None
                time.sleep(_LOCK_SECONDS)
        yield
    finally:
        os.close(descriptor)
        with suppress(OSError):  # another process waits for it
            lock_file.unlink()


def sync_file(file: Path) -> None:
    """Flush the content of a file to the disk."""
    with open(file, "rb+" if IS_WINDOWS else "rb") as opened:
        os.fsync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of files to the disk."""
    if IS_WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve_space(file: Path) -> None:
    """Reserve the space of a sparse file, which ``open_memmap`` creates.

    Otherwise a full disk would kill the process that writes to the map. Errors: OSError if there is
    not enough space.
    """
    size = file.stat().st_size
    with open(file, "rb+") as opened:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(opened.fileno(), 0, size)
            return
        while block := opened.read(1 << 20):
            opened.seek(-len(block), os.SEEK_CUR)
            opened.write(block)


def rename_folder(folder: Path, target: Path) -> None:
    """Rename a folder; an empty one of the new name is replaced."""
    if IS_WINDOWS and target.is_dir():
        target.rmdir()
    folder.rename(target)


@contextmanager
def interrupts_blocked() -> Generator[None]:
    """Block SIGINT within the block, where a system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def system_memory_bytes() -> int:
    """Return the memory of this machine in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # MEMORYSTATUSEX: two numbers of 32 bits, then the memory and six more numbers of 64 bits.
    status = (ctypes.c_uint64 * 8)()
    status[0] = ctypes.sizeof(status)
    kernel: Any = vars(ctypes)["windll"].kernel32
    kernel.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status[1])


def load_average() -> float | None:
    """Return the load average of the last minute; None if the system has none."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
