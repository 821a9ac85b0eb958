"""Tables: what is written can be read, whatever is in it; and a mistake is named to the line."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.lines import STANDARD_INPUT, json_object, name_of, read_lines
from bertwright.tasks.formats.tables import Columns, TableReader
from bertwright.text.characters import healed

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
    json.dumps({"a": e.first, "b": e.second, "label": e.label, "more": [1]}) for e in EXPECTED
)


@pytest.mark.parametrize(("name", "text"), [("x.tsv", TSV), ("x.csv", CSV), ("x.jsonl", JSONL)])
def test_three_layouts_plain_and_gzipped(tmp_path: Path, name: str, text: str) -> None:
    plain = written(tmp_path / name, text)
    windows = written(tmp_path / f"windows-{name}", "\ufeff" + text.replace("\n", "\r\n"))
    zipped = tmp_path / f"{name}.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    for path in (plain, windows, zipped):
        assert read_table(path, PAIRS) == EXPECTED


def test_standard_input_is_read_as_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in (b"\xef\xbb\xbfone\r\ntwo\n", b"one\ncaf\xe9\n"):
        (tmp_path / "x").write_bytes(content)
        told: list[str] = []
        for path in (STANDARD_INPUT, tmp_path / "x"):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
            try:
                told.append(str(list(read_lines(path))))
            except UserError as error:
                told.append(str(error).removeprefix(name_of(path)))
        assert told[0] == told[1]
        assert told[0] in (
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
    assert read_table(folder / "x.csv", Columns(), empty=True) == expected
    assert read_table(folder / "x.tsv", Columns(), empty=True) == expected


def test_a_csv_field_may_hold_lines_and_be_long(tmp_path: Path) -> None:
    long = "word " * 100_000 + "end"
    path = written(tmp_path / "x.csv", f'text,label\n"first\nsecond",1\n{long},0\n')
    texts = [example.first for example in read_table(path, Columns())]
    assert texts == ["first\nsecond", long]


def test_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '{"text": "a", "label": 3}\n{"text": "b", "label": "-.5"}')
    assert [e.label for e in read_table(path, Columns(), label_is="number")] == [3.0, -0.5]


def test_classes_of_json_are_written_as_json(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": true}')
    assert [e.label for e in read_table(path, Columns())] == ["1", "true"]


def test_a_file_without_names_or_labels(tmp_path: Path) -> None:
    path = written(tmp_path / "x.tsv", "k\tfirst\nk\tsecond\n")
    columns = Columns("text", label=None, header=("key", "text"))
    assert read_table(path, columns) == [Example("first"), Example("second")]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.tsv", "a\tbb\tlabel\nx\ty\tz\n", "x.tsv line 1: no column 'b': did you mean 'bb'?"),
        ("x.tsv", "a\tb\tlabel\nx\ty\tz\nx\ty\n", "x.tsv line 3 has 2 columns instead of 3"),
        ("x.tsv", "", "x.tsv is empty"),
        ("x.tsv", "a\tb\tlabel\n", "x.tsv holds no examples"),
        (
            "x.csv",
            'a,b,label\nx,y,"z\nx,y,z\n',
            "x.csv line 2: the row that begins here is not CSV (unexpected end of data): look for",
        ),
        ("x.jsonl", '{"a": "x"}\n', "x.jsonl line 1: no column 'b'"),
        ("x.jsonl", '{"a": "x",\n', "x.jsonl line 1 is not JSON"),
        ("x.jsonl", "[1]\n", "x.jsonl line 1: expected a JSON object, found list"),
        (
            "x.jsonl",
            '{"a": 1, "b": "y", "label": 1}',
            "x.jsonl line 1, column 'a': expected a text, found int 1",
        ),
        (
            "x.jsonl",
            '{"a": "x", "b": "y", "label": null}',
            "x.jsonl line 1, column 'label': expected a label, found null",
        ),
        (
            "x.tsv",
            "a\tb\tlabel\nx\t \tz\n",
            "x.tsv line 2, column 'b': the text is empty: remove the line",
        ),
        ("x.tsv", "a\tb\tlabel\nx\ty\t \n", "x.tsv line 2, column 'label' is empty: state"),
        ("x.tsv", "a\tb\tlabel\ta\n", "x.tsv line 1: 2 columns are named 'a': rename one"),
        ("x.jsonl", '{"a": "x", "a": "y"}\n', "x.jsonl line 1: the key 'a' stands there twice"),
        ("x.txt", "a\n", "x.txt: .txt is no table (known: .tsv, .csv, .jsonl, .parquet, also .gz)"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(UserError) as caught:
        read_table(path, PAIRS)
    assert str(caught.value).startswith(f"{tmp_path}/{sentence}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("label_is", "label", "sentence"),
    [
        ("number", "many", "column 'label': expected a number, found 'many'"),
        ("number", "nan", "column 'label': expected a number, found 'nan'"),
        ("number", "1e300", "column 'label': expected a number, found '1e300'"),
    ],
)
def test_a_wrong_label_is_named(tmp_path: Path, label_is: Any, label: str, sentence: str) -> None:
    path = written(tmp_path / "x.tsv", f"text\tlabel\nx\t{label}\n")
    with pytest.raises(UserError) as caught:
        read_table(path, Columns(), label_is=label_is)
    assert str(caught.value) == f"{path} line 2, {sentence}"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(TSV.encode() * 50)
    for name, content, sentence in [
        ("cut.tsv.gz", whole[:-20], "damaged or cut short"),
        ("plain.tsv.gz", TSV.encode(), "damaged or cut short after line 0"),
        ("latin.tsv", TSV.encode() + b"yes\tcaf\xe9\tx", "line 4: byte 8 is not UTF-8"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=sentence):
            read_table(tmp_path / name, PAIRS)
    with pytest.raises(UserError, match="no such file"):
        read_table(tmp_path / "absent.tsv", PAIRS)


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "\\ud83d", "\\", '"', "a", "\U0001f600"])))
def test_half_of_a_surrogate_pair_is_healed_as_the_tokenizer_does(parts: list[str]) -> None:
    text = "".join(parts)
    found = json_object("here", json.dumps({"text": [text], text: 1.5}))
    assert found == {"text": [healed(text)], healed(text): 1.5}
    assert json.dumps(found, ensure_ascii=False).encode()
