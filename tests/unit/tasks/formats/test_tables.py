"""Tables: any text round-trips, and errors name the line."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import (
    STANDARD_INPUT,
    display_name,
    parse_json_object,
    read_lines,
)
from bertwright.data.tokenization.characters import replace_lone_surrogates
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns, TableReader

PAIRS = Columns("a", "b", "label")
EXPECTED = [Example("one", 'say "two"', "yes"), Example("thr\x85ee", "f\u2028our, \x0b5", "no")]


def read_table(path: Path, columns: Columns, **settings: Any) -> list[Example]:
    return TableReader(columns=columns, **settings).read(path)


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


TSV = 'label\ta\tb\nyes\tone\tsay "two"\nno\tthr\x85ee\tf\u2028our, \x0b5\n'
CSV = 'a,label,b\none,yes,"say ""two"""\nthr\x85ee,no,"f\u2028our, \x0b5"\n'
JSONL = "\n".join(
    json.dumps({"a": e.text, "b": e.pair, "label": e.label, "more": [1]}) for e in EXPECTED
)


@pytest.mark.parametrize(("name", "text"), [("x.tsv", TSV), ("x.csv", CSV), ("x.jsonl", JSONL)])
def test_three_layouts_plain_and_gzipped(tmp_path: Path, name: str, text: str) -> None:
    plain = written(tmp_path / name, text)
    windows = written(tmp_path / f"windows-{name}", "\ufeff" + text.replace("\n", "\r\n"))
    zipped = tmp_path / f"{name}.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    for path in (plain, windows, zipped):
        assert read_table(path, PAIRS) == EXPECTED


def test_standard_input_is_read_like_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in (b"\xef\xbb\xbfone\r\ntwo\n", b"one\ncaf\xe9\n"):
        (tmp_path / "x").write_bytes(content)
        results: list[str] = []
        for path in (STANDARD_INPUT, tmp_path / "x"):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
            try:
                results.append(str(list(read_lines(path))))
            except UserError as error:
                results.append(str(error).removeprefix(display_name(path)))
        assert results[0] == results[1]
        assert results[0] in (
            str([(1, "one"), (2, "two")]),
            " line 2: byte 4 is not UTF-8: convert it to UTF-8",
        )


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t\0"), min_size=1)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_csv_and_tsv_keep_every_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    with open(folder / "x.csv", "w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("text", "label"), *((t, "l" + b) for t, b in rows)])
    lines = ["text\tlabel", *(f"{text}\tl{label}" for text, label in rows)]
    written(folder / "x.tsv", "\n".join(lines))
    expected = [Example(text.strip(), None, ("l" + label).strip()) for text, label in rows]
    assert read_table(folder / "x.csv", Columns(), allow_empty=True) == expected
    assert read_table(folder / "x.tsv", Columns(), allow_empty=True) == expected


def test_a_csv_field_may_hold_lines_and_be_long(tmp_path: Path) -> None:
    long = "word " * 100_000 + "end"
    path = written(tmp_path / "x.csv", f'text,label\n"first\nsecond",1\n{long},0\n')
    texts = [example.text for example in read_table(path, Columns())]
    assert texts == ["first\nsecond", long]


def test_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '{"text": "a", "label": 3}\n{"text": "b", "label": "-.5"}')
    assert [e.label for e in read_table(path, Columns(), label_kind="number")] == [3.0, -0.5]


def test_classes_of_json_are_written_as_json(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": true}')
    assert [e.label for e in read_table(path, Columns())] == ["1", "true"]


def test_file_without_header_or_labels(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", "k\tfirst\nk\tsecond\n")
    columns = Columns("text", label=None, header=("key", "text"))
    assert read_table(path, columns) == [Example("first"), Example("second")]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.tsv", "a\tbb\tlabel\nx\ty\tz\n", "x.tsv line 1: no column 'b': did you mean 'bb'?"),
        ("x.tsv", "a\tb\tlabel\nx\ty\tz\nx\ty\n", "x.tsv line 3 has 2 columns instead of 3"),
        ("x.tsv", "", "x.tsv is empty"),
        ("x.tsv", "a\tb\tlabel\n", "x.tsv has no examples"),
        (
            "x.csv",
            'a,b,label\nx,y,"z\nx,y,z\n',
            "x.csv: the row that begins in line 2 is not CSV (unexpected end of data): close its",
        ),
        ("x.jsonl", '{"a": "x"}\n', "x.jsonl line 1: no column 'b'"),
        ("x.jsonl", '{"a": "x",\n', "x.jsonl line 1 is not JSON"),
        ("x.jsonl", "[1]\n", "x.jsonl line 1: expected a JSON object, got list"),
        (
            "x.jsonl",
            '{"a": 1, "b": "y", "label": 1}',
            "x.jsonl line 1, column 'a': expected a text, got int 1",
        ),
        (
            "x.jsonl",
            '{"a": "x", "b": "y", "label": null}',
            "x.jsonl line 1, column 'label': expected a label, got null",
        ),
        (
            "x.tsv",
            "a\tb\tlabel\nx\t \tz\n",
            "x.tsv line 2, column 'b': the text is empty: remove the line",
        ),
        ("x.tsv", "a\tb\tlabel\nx\ty\t \n", "x.tsv line 2, column 'label' is empty: add"),
        ("x.tsv", "a\tb\tlabel\ta\n", "x.tsv line 1: 2 columns are named 'a': rename one"),
        ("x.jsonl", '{"a": "x", "a": "y"}\n', "x.jsonl line 1: the key 'a' occurs twice"),
        (
            "x.txt",
            "a\n",
            "x.txt: .txt is not a table format (known: .tsv, .csv, .jsonl, .parquet, also .gz)",
        ),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(UserError) as caught:
        read_table(path, PAIRS)
    assert str(caught.value).startswith(f"{tmp_path}/{sentence}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("label_kind", "label", "sentence"),
    [
        ("number", "many", "column 'label': expected a number, got 'many'"),
        ("number", "nan", "column 'label': expected a number, got 'nan'"),
        ("number", "1e300", "column 'label': expected a number, got '1e300'"),
    ],
)
def test_invalid_label_is_reported(
    tmp_path: Path, label_kind: Any, label: str, sentence: str
) -> None:
    path = written(tmp_path / "x.tsv", f"text\tlabel\nx\t{label}\n")
    with pytest.raises(UserError) as caught:
        read_table(path, Columns(), label_kind=label_kind)
    assert str(caught.value) == f"{path} line 2, {sentence}"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(TSV.encode() * 50)
    for name, content, sentence in [
        ("cut.tsv.gz", whole[:-20], "damaged or truncated"),
        ("plain.tsv.gz", TSV.encode(), "damaged or truncated after line 0"),
        ("latin.tsv", TSV.encode() + b"yes\tcaf\xe9\tx", "line 4: byte 8 is not UTF-8"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=sentence):
            read_table(tmp_path / name, PAIRS)
    with pytest.raises(UserError, match="no such file"):
        read_table(tmp_path / "absent.tsv", PAIRS)


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "\\ud83d", "\\", '"', "a", "\U0001f600"])))
def test_lone_surrogates_are_replaced_as_by_the_tokenizer(parts: list[str]) -> None:
    text = "".join(parts)
    parsed = parse_json_object("here", json.dumps({"text": [text], text: 1.5}))
    assert parsed == {"text": [replace_lone_surrogates(text)], replace_lone_surrogates(text): 1.5}
    assert json.dumps(parsed, ensure_ascii=False).encode()
