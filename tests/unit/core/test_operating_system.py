"""The package is imported, and locks work, without what only Unix has."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bertwright.core import operating_system
from bertwright.core.operating_system import file_lock, rename_folder, system_memory_bytes
from checkout import CHECKOUT

IMPORT_ALL = """
import builtins, importlib, pkgutil

UNIX = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
imports = builtins.__import__

def windows_import(name, scope=None, *arguments, **keywords):
    if name in UNIX and str((scope or {}).get("__name__")).startswith("bertwright"):
        raise ImportError(f"{name} is not on Windows")
    return imports(name, scope, *arguments, **keywords)

builtins.__import__ = windows_import
import bertwright

names = [m.name for m in pkgutil.walk_packages(bertwright.__path__, "bertwright.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
from bertwright.core import operating_system
assert operating_system.fcntl is None
print(len(names))
"""


UNIX = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
"""Modules of the standard library that Windows lacks."""


def test_one_module_imports_what_windows_lacks() -> None:
    users: set[str] = set()
    for file in (CHECKOUT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if UNIX & {*names, module}:
                users.add(file.name)
    assert users == {"operating_system.py"}


@pytest.mark.full  # it imports PyTorch and all else again
def test_every_module_is_imported_without_unix() -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT_ALL], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert int(process.stdout) > 300


@pytest.mark.linux
def test_the_space_of_a_sparse_file_is_reserved(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with open(file, "wb") as opened:
        opened.write(b"header")
        opened.truncate(1 << 20)
    assert file.stat().st_blocks * 512 < 1 << 20
    operating_system.reserve_space(file)
    assert file.stat().st_blocks * 512 >= 1 << 20
    assert file.read_bytes() == b"header".ljust(1 << 20, b"\0")


class FakeLocks:
    """The locks of Windows: of bytes of open files, refused to others with OSError."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.is_held = False

    def locking(self, descriptor: int, mode: int, num_bytes: int) -> None:
        assert (mode, num_bytes) == (self.LK_NBLCK, 1)
        if self.is_held:
            raise OSError(13, "Permission denied")
        self.is_held = True


@pytest.mark.parametrize("is_windows", [False, True])
def test_a_folder_is_locked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_windows: bool
) -> None:
    locks = FakeLocks()
    if is_windows:
        monkeypatch.setattr(operating_system, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", locks)  # type: ignore[arg-type]
    folder = tmp_path / "folder"
    with pytest.raises(FileNotFoundError), file_lock(folder):
        pass
    folder.mkdir()
    with file_lock(folder):
        with pytest.raises(BlockingIOError), file_lock(folder):
            pass
        assert not list(folder.iterdir())
    locks.is_held = False
    with file_lock(folder, wait=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_replaces_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating_system, "IS_WINDOWS", True)
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
    (tmp_path / "new" / "file").touch()
    rename_folder(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "file").exists()
    operating_system.sync_file(tmp_path / "old" / "file")
    operating_system.sync_folder(tmp_path / "not there")


def test_memory_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = system_memory_bytes()

    def fill_status(status: object) -> None:
        fields = status._obj  # type: ignore[attr-defined]
        assert fields[0] == 64
        fields[1] = expected

    kernel = SimpleNamespace(GlobalMemoryStatusEx=fill_status)
    monkeypatch.delattr(operating_system.os, "sysconf")
    monkeypatch.setattr(
        operating_system.ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False
    )
    assert system_memory_bytes() == expected


def test_load_is_unknown_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(operating_system.os, "getloadavg")
    assert operating_system.load_average() is None
