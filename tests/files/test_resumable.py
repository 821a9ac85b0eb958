"""A file that grows line by line is gone on with by the same settings, by one process at a time."""

import os
import stat
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.files import ResumableFile, content_hash

ORIGIN = {"model": "1"}


def interrupted(path: Path, content: str) -> ResumableFile:
    file = ResumableFile(path, ORIGIN)
    with pytest.raises(KeyboardInterrupt), file.opened(resume=False) as opened:
        opened.write(content)
        raise KeyboardInterrupt
    return file


def test_a_whole_file_has_nothing_beside_it(tmp_path: Path) -> None:
    with ResumableFile(tmp_path / "deep" / "out", ORIGIN).opened(resume=False) as opened:
        opened.write("a\n")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_a_line_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    file = interrupted(tmp_path / "out", "a\nb\nhal")
    with file.opened(resume=True) as opened:
        opened.write("c\n")
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(UserError, match="is whole"), file.opened(resume=True):
        pytest.fail("the block was entered")


def test_what_was_left_is_not_written_over(tmp_path: Path) -> None:
    file = interrupted(tmp_path / "out", "a\n")
    with pytest.raises(UserError, match="left by an interrupted run"), file.opened(resume=False):
        pytest.fail("the block was entered")
    assert file.part.read_text() == "a\n"


@pytest.mark.parametrize("beside", ['{"model": "2"}', "{}", None])
def test_another_origin_is_refused(tmp_path: Path, beside: str | None) -> None:
    file = interrupted(tmp_path / "out", "a\n")
    about = tmp_path / "out.part.json"
    about.unlink() if beside is None else about.write_text(beside)
    with pytest.raises(UserError, match="was begun with another model"), file.opened(resume=True):
        pytest.fail("the block was entered")
    assert file.part.read_text() == "a\n"


@pytest.mark.parametrize("resume", [False, True])
def test_one_process_writes_at_a_time(tmp_path: Path, resume: bool) -> None:
    file = ResumableFile(tmp_path / "out", ORIGIN)
    with file.opened(resume=False) as opened:
        opened.write("a\n")
        with pytest.raises(UserError, match="another process is writing to"), file.opened(resume):
            pytest.fail("the block was entered")
    assert (tmp_path / "out").read_text() == "a\n"


def test_bad_input_leaves_a_new_file_nowhere_and_an_old_one_as_it_was(tmp_path: Path) -> None:
    def fail(resume: bool) -> None:
        file = ResumableFile(tmp_path / "out", ORIGIN)
        with pytest.raises(UserError, match="no JSON"), file.opened(resume) as opened:
            opened.write("b\n")
            raise UserError("line 2 is no JSON")

    fail(resume=False)
    assert list(tmp_path.iterdir()) == []
    file = interrupted(tmp_path / "out", "a\n")
    fail(resume=True)
    assert file.part.read_text() == "a\nb\n"


def test_a_full_disk_leaves_what_was_written(tmp_path: Path) -> None:
    file = ResumableFile(tmp_path / "out", ORIGIN)
    with pytest.raises(UserError, match="No space left"), file.opened(resume=False) as opened:
        opened.write("a\n")
        opened.flush()
        raise OSError(28, "No space left on device")
    assert file.part.read_text() == "a\n"


def test_links_and_devices_stay(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("out")
    with ResumableFile(link, ORIGIN).opened(resume=False) as opened:
        opened.write("a\n")
    assert link.is_symlink()
    assert (tmp_path / "out").read_text() == "a\n"
    with ResumableFile(Path("/dev/null"), ORIGIN).opened(resume=False) as opened:
        opened.write("a\n")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    full = ResumableFile(Path("/dev/full"), ORIGIN)
    with pytest.raises(UserError, match="/dev/full: No space"), full.opened(resume=False) as opened:
        opened.write("a\n")
    with pytest.raises(UserError, match="--resume goes on with a file"), full.opened(resume=True):
        pytest.fail("the block was entered")


def test_a_content_hash_is_of_what_files_hold_not_of_where_they_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "weights").write_text("1")
    (tmp_path / "b" / "checkpoints" / "state").write_text(name)
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "b")
    (tmp_path / "b" / "weights").write_text("2")
    assert content_hash(tmp_path / "a") != content_hash(tmp_path / "b")
