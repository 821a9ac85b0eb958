"""Files and folders are written atomically."""

import errno
import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bertwright.core.errors import UserError
from bertwright.core.files import (
    atomic_file,
    atomic_folder,
    read_results,
    read_text,
    require_different_file,
    require_new_folder,
    require_writable,
    require_writable_folder,
    write_text,
)


@contextmanager
def limit_file_size(size_bytes: int) -> Generator[None]:
    """Simulate a disk that is full after ``size_bytes`` of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_folder_is_renamed_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with atomic_folder(target) as folder:
        (folder / "weights").write_bytes(b"123")
        assert not target.exists()
    assert (target / "weights").read_bytes() == b"123"
    assert list(target.parent.iterdir()) == [target]


def test_full_disk_error_names_the_file(tmp_path: Path) -> None:
    def tensors(file: Path) -> None:
        save_file({"a": torch.zeros(10_000)}, file)

    def zeros(file: Path) -> None:
        file.write_bytes(bytes(10_000))

    def vectors(file: Path) -> None:
        with open(file, "wb") as opened:
            np.save(opened, np.zeros(10_000))

    for write in (tensors, zeros, vectors):
        file = tmp_path / "model.safetensors"
        with (
            pytest.raises(UserError, match=r"(File too large|No space left on device): free some"),
            limit_file_size(5_000),
            atomic_file(file) as temporary,
        ):
            write(temporary)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b"\xff"])
def test_invalid_results_file_raises(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "runs.json"
    assert read_results(file) == {}
    file.write_text('{"a": 1}')
    assert read_results(file) == {"a": 1}
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"runs\.json"):
        read_results(file)


def test_empty_folder_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    with atomic_folder(target) as folder:
        (folder / "weights").touch()
    assert (target / "weights").exists()


def test_error_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "model") as folder:
        (folder / "weights").touch()
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "report.json") as file:
        file.write_text("{")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_existing_output_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"precious")
    (tmp_path / "file").touch()
    for name in ("model", "file"):
        with pytest.raises(UserError, match="already exists: choose another folder"):
            require_new_folder(tmp_path / name)
        with pytest.raises(UserError, match="already exists"), atomic_folder(tmp_path / name):
            pytest.fail("the block was entered")
    with pytest.raises(UserError, match="already exists"):
        require_new_folder(Path("/"))
    assert (tmp_path / "model" / "weights").read_bytes() == b"precious"


@pytest.mark.parametrize("target", ["/proc/x", "/proc/deep/x", "{folder}/file/x"])
def test_uncreatable_output_raises_early(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").touch()
    path = Path(target.format(folder=tmp_path))
    for require in (require_new_folder, require_writable, require_writable_folder):
        with pytest.raises(UserError, match=f"^{path} cannot be created: "):
            require(path)
    with pytest.raises(UserError, match="is a folder"):
        require_writable(tmp_path)
    with pytest.raises(UserError, match="file is a file: name a folder"):
        require_writable_folder(tmp_path / "file")
    with pytest.raises(UserError, match="/proc cannot be created: /proc is not a writable folder"):
        require_writable_folder(Path("/proc"))
    require_writable_folder(tmp_path)
    require_writable_folder(tmp_path / "new" / "folder")
    require_writable(tmp_path / "file")
    require_writable(tmp_path / "new" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "report.json"
    write_text(file, "old")
    with atomic_file(file) as temporary:
        temporary.write_text("new, and longer")
        assert file.read_text() == "old"
    assert file.read_text() == "new, and longer"
    assert list(file.parent.iterdir()) == [file]


def test_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_text(file, "old")
    with (
        pytest.raises(UserError, match=r"report\.json: .* free some space"),
        limit_file_size(1000),
        atomic_file(file) as temporary,
    ):
        temporary.write_bytes(b"x" * 2000)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_full_disk_leaves_no_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"model: .* free some space"),
        limit_file_size(1000),
        atomic_folder(tmp_path / "model") as folder,
    ):
        (folder / "small").write_bytes(b"x")
        (folder / "weights").write_bytes(b"x" * 2000)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_error_names_the_final_path(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=rf"^{tmp_path}/model/recipe\.yaml: File too large"),
        limit_file_size(1000),
        atomic_folder(tmp_path / "model") as folder,
    ):
        write_text(folder / "recipe.yaml", "x" * 2000)


def test_other_errors_are_not_translated(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), atomic_folder(tmp_path / "model"):
        raise PermissionError(errno.EACCES, "Permission denied")


WRITE_AND_WAIT = """
import sys, time
from pathlib import Path
from bertwright.core.files import atomic_file, atomic_folder
with atomic_folder(Path(sys.argv[1]) / "model") as folder, atomic_file(
    Path(sys.argv[1]) / "report.json") as file:
    (folder / "weights").write_bytes(b"half")
    file.write_bytes(b"{")
    print("written", flush=True)
    time.sleep(60)
"""


def test_kill_leaves_only_hidden_files(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(tmp_path)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        writer.kill()
    remaining = list(tmp_path.iterdir())
    assert remaining
    assert all(path.name.startswith(".") for path in remaining)
    with atomic_folder(tmp_path / "model") as folder:
        (folder / "weights").write_bytes(b"whole")
    write_text(tmp_path / "report.json", "{}")
    assert (tmp_path / "model" / "weights").read_bytes() == b"whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "report.json"]


def test_output_of_a_running_process_is_kept(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(tmp_path)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        with atomic_folder(tmp_path / "model"):
            assert len(list(tmp_path.glob(".model.unfinished-*/weights"))) == 1
        writer.kill()


def test_input_is_not_overwritten(tmp_path: Path) -> None:
    file, link = tmp_path / "texts", tmp_path / "link"
    require_different_file(file, file)
    file.write_text("words")
    link.symlink_to(file)
    require_different_file(tmp_path / "other", file)
    with pytest.raises(UserError, match="link is the input"):
        require_different_file(link, file)


def test_invalid_utf8_raises(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_bytes(b"ab\xff")
    with pytest.raises(UserError, match="words: byte 3 is not UTF-8"):
        read_text(file)
