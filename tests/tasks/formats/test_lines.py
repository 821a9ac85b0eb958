"""Lines are read in bounded memory, and JSON on them in one sentence where it cannot be."""

import gzip
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.tasks.formats.lines import LONGEST_LINE, json_object, read_lines, whole_text
from bertwright.tasks.formats.questions import json_of


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_without_end_is_refused(name: str, tmp_path: Path) -> None:
    content = b"short\n" + b"a" * (LONGEST_LINE + 2)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    lines = read_lines(tmp_path / name)
    assert next(lines) == (1, "short")
    with pytest.raises(UserError, match="line 2 has more than 33,554,432 bytes"):
        next(lines)


def test_a_file_that_is_read_whole_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertwright.tasks.formats.lines.LONGEST_FILE", 1 << 21)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * (10 << 20)))
    with pytest.raises(UserError, match=r"a\.json\.gz has more than 2,097,152 bytes"):
        whole_text(tmp_path / "a.json.gz")


def test_a_file_that_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf{\r\n\xff}")
    with pytest.raises(UserError, match=r"a\.json line 2: a byte is not UTF-8"):
        whole_text(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("9" * 5_000, "a number has more digits than any that is read"),
        ("[" * 100_000, "more than 100 lists and objects"),
        ("[" * 300 + "]" * 300, "more than 100 lists and objects"),
    ],
)
def test_json_that_cannot_be_read_is_one_sentence(value: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"line 3 is not JSON that can be read: {message}"):
        json_object("line 3", f'{{"text": {value}}}')
    (tmp_path / "a.json").write_text(value)
    with pytest.raises(UserError, match=rf"a\.json is not JSON that can be read: {message}"):
        json_of(tmp_path / "a.json")
