"""Links are kept, their targets replaced; devices and pipes are written to directly."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.core.files import (
    atomic_file,
    atomic_folder,
    is_stream,
    output_lock,
    require_different_file,
    require_file,
    require_new_folder,
    require_writable,
    write_text,
)


@contextmanager
def umask(mask: int) -> Generator[None]:
    previous = os.umask(mask)
    try:
        yield
    finally:
        os.umask(previous)


def test_link_is_kept_and_its_target_replaced(tmp_path: Path) -> None:
    target, link, link_to_link = (tmp_path / name for name in ("target", "link", "again"))
    target.write_text("old")
    link.symlink_to("target")
    link_to_link.symlink_to(link)
    write_text(link_to_link, "new")
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert link.is_symlink()
    assert link_to_link.is_symlink()


def test_dangling_link_is_kept_and_its_target_created(tmp_path: Path) -> None:
    for name in ("file", "folder"):
        (tmp_path / f"{name}-link").symlink_to(tmp_path / name)
    write_text(tmp_path / "file-link", "new")
    with atomic_folder(tmp_path / "folder-link") as folder:
        (folder / "weights").write_text("whole")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "folder" / "weights").read_text() == "whole"
    assert (tmp_path / "file-link").is_symlink()
    assert (tmp_path / "folder-link").is_symlink()


def test_link_to_an_empty_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    with atomic_folder(tmp_path / "link") as folder:
        (folder / "weights").write_text("whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "weights").read_text() == "whole"
    with pytest.raises(UserError, match="link already exists"), atomic_folder(tmp_path / "link"):
        pytest.fail("the block was entered")
    with pytest.raises(UserError, match="link is a folder"):
        write_text(tmp_path / "link", "new")


def test_link_to_itself_raises(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for require in (require_new_folder, require_writable):
        with pytest.raises(UserError, match="loop is a link that leads back to itself"):
            require(loop)
    with pytest.raises(UserError, match="leads back to itself"):
        write_text(loop, "new")


def test_devices_are_written_to_directly(tmp_path: Path) -> None:
    for name in ("/dev/null", "/dev/full"):
        assert is_stream(Path(name))
        require_writable(Path(name))
    write_text(Path("/dev/null"), "new")
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    write_text(link, "new")
    assert link.is_symlink()
    with pytest.raises(UserError, match="/dev/full: No space left on device: free some space"):
        write_text(Path("/dev/full"), "new")
    for name in ("/dev/null", "/dev/full"):
        assert stat.S_ISCHR(os.stat(name).st_mode)
        with pytest.raises(UserError, match=f"{name} already exists"):
            require_new_folder(Path(name))
        with pytest.raises(UserError, match="is not a regular file"):
            require_file(Path(name))
    require_different_file(Path("/dev/null"), Path("/dev/null"))


@pytest.mark.parametrize("name", [".", "", "link", "../run"])
def test_the_current_folder_is_not_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    path = tmp_path / "link" if name == "link" else Path(name)
    with pytest.raises(UserError, match="is the current folder"), atomic_folder(path) as folder:
        (folder / "a").touch()
    assert not any(Path.cwd().iterdir())


def test_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through the pipe")
    reader.join()
    assert received == ["through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_continues_after_a_write(tmp_path: Path, name: str) -> None:
    program = (
        "import sys; from pathlib import Path; from bertwright.core.files import write_text\n"
        "write_text(Path(sys.argv[1]), 'first\\n'); print('second')"
    )
    with open(tmp_path / "out", "wb") as out:
        subprocess.run([sys.executable, "-c", program, name], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "first\nsecond\n"
    piped = subprocess.run(
        [sys.executable, "-c", program, name], stdout=subprocess.PIPE, check=True, text=True
    )
    assert piped.stdout == "first\nsecond\n"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o027, 0o002])
def test_umask_decides_permissions(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        with atomic_file(tmp_path / "file") as temporary:
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
        with atomic_folder(tmp_path / "folder") as folder:
            os.close(os.open(folder / "private", os.O_CREAT | os.O_WRONLY, 0o600))
            (folder / "below").mkdir()
            (folder / "below" / "file").touch()
    for path in ("file", "folder/private", "folder/below/file"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o666 & ~mask
    for path in ("folder", "folder/below"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o777 & ~mask


def test_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "folder").mkdir(0o700)
    write_text(tmp_path / "file", "new")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


def test_temporary_names_are_unpredictable(tmp_path: Path) -> None:
    names: set[str] = set()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    planted = tmp_path / f".out.unfinished-{'0' * 16}"
    planted.symlink_to("precious")
    mine = tmp_path / ".out.unfinished-notes"
    mine.mkdir()
    for _ in range(3):
        with atomic_file(tmp_path / "out") as temporary:
            names.add(temporary.parent.name)
            temporary.touch()
    assert len(names) == 3
    assert (tmp_path / "precious" / "file").exists()
    assert planted.is_symlink()
    assert mine.is_dir()


def test_longest_file_name(tmp_path: Path) -> None:
    long = tmp_path / ("ä" * 127)
    write_text(long, "new")
    assert long.read_text() == "new"
    assert list(tmp_path.iterdir()) == [long]


def test_concurrent_writers_of_a_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="was created by another process"),
        atomic_folder(tmp_path / "model"),
        atomic_folder(tmp_path / "model") as other,
    ):
        (other / "weights").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    with (
        output_lock(tmp_path),
        pytest.raises(UserError, match="another process is writing"),
        output_lock(tmp_path),
    ):
        pytest.fail("the block was entered")
