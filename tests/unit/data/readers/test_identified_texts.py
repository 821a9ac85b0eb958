"""Texts with ids and titles, from plain text and tables."""

import json
from pathlib import Path

import fsspec
import pytest

from bertwright.core.errors import UserError
from bertwright.data.document import ReadCounts
from bertwright.data.readers.identified_texts import IdentifiedText, read_identified_texts
from bertwright.data.readers.sources import content_version, find_sources

ROWS = [
    {"id": "a", "text": "First text.", "title": "One"},
    {"id": 7, "text": "  Second. ", "title": None},
    {"text": "Third."},
    {"id": "d", "text": " "},
]
EXPECTED = [("a", "First text.", "One"), ("7", "Second.", None), ("{}:3", "Third.", None)]


def read(file: Path, column: str = "text") -> list[IdentifiedText]:
    return list(read_identified_texts(find_sources([file], column), ReadCounts()))


def write_tables(folder: Path) -> list[Path]:
    import pyarrow as arrow
    from pyarrow import parquet

    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    cells = [[str(row.get(name) or "") for name in ("title", "text", "id")] for row in ROWS]
    for name, separator in (("t.csv", ","), ("t.tsv", "\t")):
        lines = ["title", "text", "id"], *cells
        (folder / name).write_text("".join(separator.join(line) + "\n" for line in lines))
    columns = {
        name: [str(row[name]) if row.get(name) else None for row in ROWS] for name in ROWS[0]
    }
    parquet.write_table(arrow.table(columns), folder / "t.parquet")
    return [folder / f"t.{suffix}" for suffix in ("jsonl", "csv", "tsv", "parquet")]


def test_tables_give_ids_and_titles_where_they_have_them(tmp_path: Path) -> None:
    for file in write_tables(tmp_path):
        expected = [IdentifiedText(i.format(file.name), *rest) for i, *rest in EXPECTED]
        assert read(file) == expected, file.name


def test_tables_without_ids_number_their_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("gloss\nfirst\n\nsecond\n")
    assert read(tmp_path / "t.csv", "gloss") == [
        IdentifiedText("t.csv:1", "first"),
        IdentifiedText("t.csv:2", "second"),
    ]


def test_a_line_of_plain_text_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("first\n\nthird line\n")
    assert read(tmp_path / "t.txt") == [
        IdentifiedText("t.txt:1", "first"),
        IdentifiedText("t.txt:3", "third line"),
    ]


def test_the_title_is_encoded_with_the_text() -> None:
    assert IdentifiedText("1", "text", "title").content == "title text"
    assert IdentifiedText("1", "text").content == "text"


def test_unusable_rows_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    for row, message in (
        ({"text": 3}, "t.jsonl, line 1: 'text' is not a text: 3"),
        ({"text": "a", "id": [1]}, "line 1: 'id' is not a text"),
        ({"body": "a"}, "no column 'text'"),
    ):
        file.write_text(json.dumps(row) + "\n")
        with pytest.raises(UserError, match=message):
            read(file)
    (tmp_path / "de.txt").write_text("ein\n")
    (tmp_path / "en.txt").write_text("one\n")
    with pytest.raises(UserError, match="holds translations"):
        read(f"en,de={tmp_path}/en.txt,{tmp_path}/de.txt")


def test_files_of_the_same_name_have_the_folders_in_which_they_differ(tmp_path: Path) -> None:
    for name in ("x/a/notes.txt", "x/b/notes.txt", "x/b/other.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\n")
    ids = [text.id for text in read(tmp_path)]
    assert ids == ["a/notes.txt:1", "b/notes.txt:1", "other.txt:1"]


def test_the_version_of_a_source_changes_with_its_content(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    file, url = tmp_path / "t.txt", "memory://versions/t.txt"
    versions = []
    for content in (b"first", b"other"):
        file.write_bytes(content)
        memory.pipe("/versions/t.txt", content)
        versions.append([content_version(s) for s in find_sources([file, url])])
    for before, after in zip(*versions, strict=True):
        assert before
        assert before != after
