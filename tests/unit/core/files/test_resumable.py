"""A resumable file is continued with the same provenance, by one process at a time."""

import os
import stat
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.core.files import ResumableFile, content_hash

PROVENANCE = {"model": "1"}


def write_interrupted(path: Path, content: str) -> ResumableFile:
    file = ResumableFile(path, PROVENANCE)
    with pytest.raises(KeyboardInterrupt), file.open(resume=False) as opened:
        opened.write(content)
        raise KeyboardInterrupt
    return file


def test_complete_file_leaves_no_partial_file(tmp_path: Path) -> None:
    with ResumableFile(tmp_path / "deep" / "out", PROVENANCE).open(resume=False) as opened:
        opened.write("a\n")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_partial_line_is_rewritten(tmp_path: Path) -> None:
    file = write_interrupted(tmp_path / "out", "a\nb\nhal")
    with file.open(resume=True) as opened:
        opened.write("c\n")
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(UserError, match="is complete"), file.open(resume=True):
        pytest.fail("the block was entered")


def test_partial_file_is_not_overwritten(tmp_path: Path) -> None:
    file = write_interrupted(tmp_path / "out", "a\n")
    with pytest.raises(UserError, match="left by an interrupted run"), file.open(resume=False):
        pytest.fail("the block was entered")
    assert file.partial_path.read_text() == "a\n"


@pytest.mark.parametrize("content", ['{"model": "2"}', "{}", None])
def test_other_provenance_raises(tmp_path: Path, content: str | None) -> None:
    file = write_interrupted(tmp_path / "out", "a\n")
    provenance_file = tmp_path / "out.part.json"
    provenance_file.unlink() if content is None else provenance_file.write_text(content)
    with pytest.raises(UserError, match="was started with another model"), file.open(resume=True):
        pytest.fail("the block was entered")
    assert file.partial_path.read_text() == "a\n"


@pytest.mark.parametrize("resume", [False, True])
def test_concurrent_writers_raise(tmp_path: Path, resume: bool) -> None:
    file = ResumableFile(tmp_path / "out", PROVENANCE)
    with file.open(resume=False) as opened:
        opened.write("a\n")
        with pytest.raises(UserError, match="another process is writing to"), file.open(resume):
            pytest.fail("the block was entered")
    assert (tmp_path / "out").read_text() == "a\n"


def test_user_error_removes_a_new_file_only(tmp_path: Path) -> None:
    def fail(resume: bool) -> None:
        file = ResumableFile(tmp_path / "out", PROVENANCE)
        with pytest.raises(UserError, match="not JSON"), file.open(resume) as opened:
            opened.write("b\n")
            raise UserError("line 2 is not JSON")

    fail(resume=False)
    assert list(tmp_path.iterdir()) == []
    file = write_interrupted(tmp_path / "out", "a\n")
    fail(resume=True)
    assert file.partial_path.read_text() == "a\nb\n"


def test_a_file_without_provenance_is_not_left(tmp_path: Path) -> None:
    """Its partial file has a valid name, that of its provenance is too long."""
    file = ResumableFile(tmp_path / ("n" * 248), PROVENANCE)
    with pytest.raises(OSError, match="too long"), file.open(resume=False):
        pytest.fail("the block was entered")
    assert not list(tmp_path.iterdir())


def test_full_disk_keeps_written_lines(tmp_path: Path) -> None:
    file = ResumableFile(tmp_path / "out", PROVENANCE)
    with pytest.raises(UserError, match="No space left"), file.open(resume=False) as opened:
        opened.write("a\n")
        opened.flush()
        raise OSError(28, "No space left on device")
    assert file.partial_path.read_text() == "a\n"


def test_links_and_devices_are_kept(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("out")
    with ResumableFile(link, PROVENANCE).open(resume=False) as opened:
        opened.write("a\n")
    assert link.is_symlink()
    assert (tmp_path / "out").read_text() == "a\n"
    with ResumableFile(Path("/dev/null"), PROVENANCE).open(resume=False) as opened:
        opened.write("a\n")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    full_device = ResumableFile(Path("/dev/full"), PROVENANCE)
    with (
        pytest.raises(UserError, match="/dev/full: No space"),
        full_device.open(resume=False) as opened,
    ):
        opened.write("a\n")
    with pytest.raises(UserError, match="--resume continues a file"), full_device.open(resume=True):
        pytest.fail("the block was entered")


def test_content_hash_ignores_the_path(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "weights").write_text("1")
    (tmp_path / "b" / "checkpoints" / "state").write_text(name)
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "b")
    (tmp_path / "b" / "weights").write_text("2")
    assert content_hash(tmp_path / "a") != content_hash(tmp_path / "b")
