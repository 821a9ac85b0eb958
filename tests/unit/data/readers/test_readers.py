"""Input formats, valid and invalid."""

import codecs
import csv
import gzip
import io
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bertwright.core.errors import UserError
from bertwright.data.document import MAX_DOCUMENT_LENGTH, MAX_PARAGRAPH_LENGTH, ReadCounts
from bertwright.data.readers import streams
from bertwright.data.readers import tables as readers
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents

DOCUMENTS = ["First line.\nSecond line.", "Another document, with \u201cquotes\u201d.", "Third."]


def as_txt(documents: list[str]) -> bytes:
    return "\n\n".join(documents).encode()


def as_jsonl(documents: list[str]) -> bytes:
    return "\n".join(json.dumps({"id": 1, "text": text}) for text in documents).encode()


def as_json(documents: list[str]) -> bytes:
    return json.dumps([{"id": 1, "text": text} for text in documents], indent=1).encode()


def as_csv(documents: list[str]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["id", "text"], *(["1", text] for text in documents)])
    return file.getvalue().encode()


def as_parquet(documents: list[str]) -> bytes:
    file = io.BytesIO()
    parquet.write_table(arrow.table({"id": range(len(documents)), "text": documents}), file)
    return file.getvalue()


WRITERS = {
    "txt": as_txt,
    "json": as_json,
    "jsonl": as_jsonl,
    "csv": as_csv,
    "parquet": as_parquet,
}
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def read(
    *inputs: Path | str, column: str = "text", format: str | None = None
) -> tuple[list[str], ReadCounts]:
    counts = ReadCounts()
    sources = find_sources(inputs, column, format, counts)
    return [document.text for document in read_documents(sources, counts)], counts


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_formats_plain_and_compressed(suffix: str, compression: str, tmp_path: Path) -> None:
    file = tmp_path / f"text.{suffix}{compression}"
    file.write_bytes(COMPRESSORS[compression](WRITERS[suffix](DOCUMENTS)))
    documents, counts = read(file)
    assert documents == DOCUMENTS
    assert (counts.files, counts.raw_bytes) == (1, file.stat().st_size)
    assert counts.sources[0]["name"] == str(file)


def test_tsv_keeps_quotes(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('text\tlabel\n"Half a quote\t1\n')
    assert read(tmp_path)[0] == ['"Half a quote']


@pytest.mark.parametrize("format", [None, "jsonl"])
def test_standard_input(format: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    data = WRITERS[format or "txt"](DOCUMENTS)
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(data)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert read("-", format=format)[0] == DOCUMENTS


def test_folders_and_patterns(tmp_path: Path) -> None:
    for name, text in (("b/2.txt", "two"), ("b/1.txt.gz", "one"), ("a.txt", "zero")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.txt").write_text("hidden")
    documents, counts = read(tmp_path)
    assert documents == ["zero", "one", "two"]
    assert counts.ignored_files == 1
    assert read(f"{tmp_path}/**/*.txt")[0] == ["zero", "two"]
    assert read(tmp_path / "b" / "2.txt", tmp_path)[0] == ["two", "zero", "one"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "no such file or folder"),
        ("*.txt", "no such file or folder"),
        ("empty", "holds no text"),
        ("notes.md", "--format"),
    ],
)
def test_unmatched_paths_raise(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.md").write_text("text")
    with pytest.raises(UserError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("argument", ["", "en="])
def test_an_empty_name_is_not_the_current_folder(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="empty name"):
        read(argument)


def test_a_pipe_is_not_called_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(UserError, match="not a regular file"):
        read(tmp_path / "a.txt")


def test_explicit_format(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("text")
    assert read(tmp_path / "notes.md", format="txt")[0] == ["text"]
    with pytest.raises(UserError, match="did you mean 'json'"):
        read(tmp_path / "notes.md", format="jsonn")


def test_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(
        b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree\rfour\r\r five \x0b\n \t\nsix"
    )
    assert read(tmp_path)[0] == ["one\ntwo", "three\nfour", "five", "six"]


@given(st.text(alphabet="a\r\n\0\xe9"), st.integers(1, 5))
def test_decoding_does_not_depend_on_blocks(text: str, size: int) -> None:
    data = text.encode()
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    counts = ReadCounts()
    expected = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
    assert "".join(streams.decode_text(blocks, "text", counts)) == expected
    assert counts.nul_bytes == text.count("\0")


@given(st.binary(max_size=63), st.integers(1, 7))
def test_any_bytes_can_be_decoded(data: bytes, size: int) -> None:
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    whole, parts = ReadCounts(), ReadCounts()
    try:
        text = "".join(streams.decode_text([data], "text", whole))
    except UserError:
        return
    assert text.encode().decode() == text
    if not data.startswith(b"\xef"):  # a byte order mark must be in the first block
        assert "".join(streams.decode_text(blocks, "text", parts)) == text


def test_invalid_utf8_and_nul_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 na\xefve \xef\xbf\xbd real\x00 text\n" * 10)
    documents, counts = read(tmp_path)
    assert counts.invalid_utf8 == 20
    assert counts.nul_bytes == 10
    assert "\0" not in documents[0]


def test_lone_surrogate_in_json(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"text": "broken \\ud83d here \\u0000, whole \\ud83d\\ude00"}\n'
    )
    documents, counts = read(tmp_path)
    assert documents == ["broken \ufffd here , whole \U0001f600"]
    assert (counts.invalid_utf8, counts.nul_bytes) == (1, 1)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x7fELF" + bytes(100), "a program"),
        (b"%PDF-1.4 text", "a PDF"),
        ("text".encode("utf-16"), "UTF-16"),
        (random.Random(0).randbytes(1000), "a binary file"),
    ],
)
def test_binary_files_raise(content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"a.txt is {what}|a.txt is text in {what}"):
        read(tmp_path)


def test_empty_files_are_counted(tmp_path: Path) -> None:
    for suffix in WRITERS:
        (tmp_path / f"empty.{suffix}").write_bytes(b"")
    (tmp_path / "some.txt").write_text("text")
    documents, counts = read(*sorted(tmp_path.iterdir()))
    assert documents == ["text"]
    assert counts.empty_files == len(WRITERS)


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_truncated_or_damaged_compressed_files_raise(compression: str, tmp_path: Path) -> None:
    packed = COMPRESSORS[compression](random.Random(0).randbytes(5000).hex().encode())
    file = tmp_path / f"a.txt{compression}"
    file.write_bytes(packed[:-100])
    with pytest.raises(UserError, match="is truncated"):
        read(file)
    file.write_bytes(packed[:2000] + bytes(500) + packed[2500:])
    with pytest.raises(UserError, match=r"is damaged|is truncated"):
        read(file)


@pytest.mark.parametrize("compression", [".gz", ".zst"])
def test_compressed_files_of_several_members(compression: str, tmp_path: Path) -> None:
    pack = COMPRESSORS[compression]
    file = tmp_path / f"a.txt{compression}"
    file.write_bytes(pack(b"one ") + pack(b"two " * 200_000) + pack(b"three"))
    documents, _ = read(file)
    assert " ".join(documents).split() == ["one", *["two"] * 200_000, "three"]
    file.write_bytes(pack(b"") + pack(codecs.BOM_UTF8 + b"one"))
    assert read(file)[0] == ["one"]


def test_invalid_rows_raise(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for line, message in (
        ("{broken", r"line 2 is not JSON: Expecting .* \(character 2\)$"),
        ("[1]", "line 2 is not a JSON object"),
        ('{"txt": "x"}', "line 2 has no column 'text': did you mean 'txt'"),
        ('{"text": 3}', "line 2: 'text' holds int, not text"),
    ):
        file.write_text(f'{{"text": "fine"}}\n{line}\n')
        with pytest.raises(UserError, match=message):
            read(file)


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("a.csv", 'text,b\none,1\n"two,2\nthree,3\n', "row that begins in line 3 is not CSV"),
        ("a.csv", "text,b\none,1\ntwo\n", "line 3 has 1 column, and the first line 2"),
        ("a.tsv", "text\tb\none\t1\t2\n", "line 2 has 3 columns, and the first line 2"),
    ],
)
def test_malformed_table_error_names_the_line(
    name: str, table: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(table)
    with pytest.raises(UserError, match=message):
        read(tmp_path / name)


def test_columns_of_list_rows_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[["one", "two"], ["three", "four"]]')
    assert read(tmp_path / "a.json", column="1")[0] == ["two", "four"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", "a.json is not JSON"),
        ('{"text": "a"}', "a.json is not a JSON list of rows: .* --format jsonl"),
        ('[{"text": "a"}, "b"]', "a.json, row 2 is neither an object nor a list"),
        ('[["a"]]', "row 1 has no column 'text'"),
    ],
)
def test_invalid_json_list_raises(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.json")


def test_json_is_read_only_if_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "report.json").write_bytes(as_json(DOCUMENTS))
    documents, counts = read(tmp_path)
    assert documents == ["one"]
    assert counts.ignored_files == 1
    assert read(tmp_path / "report.json")[0] == DOCUMENTS


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_missing_column_error_lists_columns(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(WRITERS[suffix](DOCUMENTS))
    with pytest.raises(UserError, match=r"has no column 'body' \(known: id, text\).*--column"):
        read(tmp_path, column="body")


def test_damaged_parquet_file_raises(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(as_parquet(DOCUMENTS)[:-10])
    with pytest.raises(UserError, match=r"a\.parquet is not a complete parquet file"):
        read(tmp_path)


def test_empty_lines_of_a_table_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ntext,lang\nhello there,en\n\nbye now,en\n")
    sources = find_sources([tmp_path / "a.csv"], language_column="lang")
    documents = list(read_documents(sources, ReadCounts()))
    assert [document.text for document in documents] == ["hello there", "bye now"]


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n\n{"text": null}\n{"text": ["a", "b"]}\n')
    documents, counts = read(tmp_path)
    assert documents == ["a\nb"]
    assert counts.empty_rows == 2


def test_long_line_is_split_at_sentence_ends(tmp_path: Path) -> None:
    sentence = "The keeper counted the ships again. "
    number = 3 * MAX_DOCUMENT_LENGTH // len(sentence)
    (tmp_path / "a.txt").write_text(sentence * number)
    documents, counts = read(tmp_path)
    assert (
        "".join(documents).replace("\n", "").replace(" ", "") == sentence.replace(" ", "") * number
    )
    assert counts.split_paragraphs > 2
    assert counts.split_documents == len(documents) - 1 > 1
    paragraphs = [paragraph for document in documents for paragraph in document.split("\n")]
    assert max(map(len, paragraphs)) <= MAX_PARAGRAPH_LENGTH
    assert max(map(len, documents)) <= MAX_DOCUMENT_LENGTH
    assert {paragraph[-6:] for paragraph in paragraphs} == {"again."}


@pytest.mark.parametrize("filler", ["no end to this line of words", "x" * 1000, "\u6211" * 1000])
def test_long_lines_without_sentences_are_split(filler: str, tmp_path: Path) -> None:
    text = filler * (200_000 // len(filler))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    (documents, _), squeezed = read(tmp_path), text.replace(" ", "")
    assert "".join(documents).replace("\n", "").replace(" ", "") == squeezed


def test_too_long_row_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_ROW_LENGTH", 1000)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "x" * 2000}))
    with pytest.raises(UserError, match="more than 1,000 characters"):
        read(tmp_path)


def test_unreadable_file_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("text")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UserError, match=r"a\.txt cannot be read: Permission denied"):
        read(tmp_path)


def test_duplicate_column_raises_if_it_is_read(tmp_path: Path) -> None:
    """A column that is not read may occur twice."""
    texts = ["One text.", "Another."]
    tables = {
        "a.csv": "text,x,x,{}\n" + "".join(f"{text},1,2,3\n" for text in texts),
        "a.tsv": "text\tx\tx\t{}\n" + "".join(f"{text}\t1\t2\t3\n" for text in texts),
    }
    for name, content in tables.items():
        (tmp_path / name).write_text(content.format("y"))
        assert read(tmp_path / name)[0] == texts
        (tmp_path / name).write_text(content.format("text"))
        with pytest.raises(UserError, match=rf"{name} has two columns 'text'"):
            read(tmp_path / name)[0]
    for names in (["x", "text", "x"], ["text", "x", "text"]):
        table = arrow.Table.from_arrays([arrow.array(texts)] * 3, names=names)
        parquet.write_table(table, tmp_path / "a.parquet")
        if names[0] == "x":
            assert read(tmp_path / "a.parquet")[0] == texts
    with pytest.raises(UserError, match=r"a\.parquet has two columns 'text'"):
        read(tmp_path / "a.parquet")[0]


def test_duplicate_struct_field_raises(tmp_path: Path) -> None:
    sides = arrow.StructArray.from_arrays([arrow.array(["a", "b"])] * 3, names=["en", "de", "en"])
    parquet.write_table(arrow.table({"text": sides}), tmp_path / "a.parquet")
    source = f"en,de={tmp_path / 'a.parquet'}"
    with pytest.raises(UserError, match="has two columns 'en'"):
        list(read_documents(find_sources([source]), ReadCounts()))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_duplicate_json_key_raises(name: str, tmp_path: Path) -> None:
    row = '{"text": "One.", "about": {"a": 1, "a": 2}}'
    (tmp_path / name).write_text(f"[{row}]" if name == "a.json" else row)
    with pytest.raises(UserError, match="the key 'a' occurs twice"):
        read(tmp_path / name)[0]
