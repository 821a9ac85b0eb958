"""Lines are read in bounded memory, and unreadable JSON is reported in one sentence."""

import gzip
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import (
    MAX_LINE_BYTES,
    parse_json_object,
    read_all_text,
    read_lines,
)
from bertwright.tasks.formats.squad import read_json


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_endless_line_is_refused(name: str, tmp_path: Path) -> None:
    content = b"short\n" + b"a" * (MAX_LINE_BYTES + 2)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    lines = read_lines(tmp_path / name)
    assert next(lines) == (1, "short")
    with pytest.raises(UserError, match="line 2 has more than 33,554,432 bytes"):
        next(lines)


def test_whole_file_has_a_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.data.readers.text_lines.MAX_FILE_BYTES", 1 << 21)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * (10 << 20)))
    with pytest.raises(UserError, match=r"a\.json\.gz has more than 2,097,152 bytes"):
        read_all_text(tmp_path / "a.json.gz")


def test_invalid_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf{\r\n\xff}")
    with pytest.raises(UserError, match=r"a\.json line 2: a byte is not UTF-8"):
        read_all_text(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("9" * 5_000, "a number has too many digits"),
        ("[" * 100_000, "more than 100 lists and objects"),
        ("[" * 300 + "]" * 300, "more than 100 lists and objects"),
    ],
)
def test_unreadable_json_is_reported_in_one_sentence(
    value: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"line 3: {message}"):
        parse_json_object("line 3", f'{{"text": {value}}}')
    (tmp_path / "a.json").write_text(value)
    with pytest.raises(UserError, match=rf"a\.json is not readable JSON: {message}"):
        read_json(tmp_path / "a.json")
