"""Data sets on the Hub are streamed in the order of their files, and errors name the choices."""

import io
import json
from pathlib import Path

import pyarrow as arrow
import pytest
from pyarrow import parquet

from bertwright.core.errors import UserError
from bertwright.data.document import ReadCounts
from bertwright.data.hub.reference import HubDataset
from bertwright.data.hub.rows import open_split
from bertwright.data.readers.identified_texts import IdentifiedText, read_identified_texts
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from hub_server import TOKEN, Hub

CARD = """---
configs:
- config_name: long
  data_files:
  - {split: train, path: "long/train-*"}
  - {split: validation, path: "long/validation-*"}
- config_name: short
  data_files: short/*
---
"""


def jsonl(first: int, count: int) -> str:
    rows = ({"text": f"Text {n}.", "number": n} for n in range(first, first + count))
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(first: int, count: int) -> bytes:
    file = io.BytesIO()
    rows = [{"text": f"Text {n}.", "number": n} for n in range(first, first + count)]
    parquet.write_table(arrow.Table.from_pylist(rows), file, row_group_size=2)
    return file.getvalue()


def read(name: str, column: str = "text", split: str = "train") -> tuple[list[str], ReadCounts]:
    counts = ReadCounts()
    sources = find_sources([name], column, None, counts, split=split)
    return [document.text for document in read_documents(sources, counts)], counts


def test_rows_are_read_in_order_from_one_commit(dataset_hub: Hub) -> None:
    repository = dataset_hub.add(
        "me/text", {"data/train-0.jsonl": jsonl(0, 3), "data/train-1.jsonl": jsonl(3, 2)}, "dataset"
    )
    texts, counts = read("hf:me/text")
    assert texts == [f"Text {n}." for n in range(5)]
    (source,) = counts.sources
    assert source["name"] == f"hf:me/text train {repository.refs['main']}"
    assert read("hf:me/text")[1].sources == counts.sources
    repository.commit({"data/train-0.jsonl": jsonl(7, 1).encode()})
    assert read("hf:me/text")[0] == ["Text 7."]
    assert len(read(f"hf:me/text@{source['name'].rpartition(' ')[2]}")[0]) == 5


def test_ids_and_titles_are_read(dataset_hub: Hub) -> None:
    row = {"text": "A text.", "id": "a", "title": "Its title"}
    dataset_hub.add("me/titles", {"train.jsonl": json.dumps(row)}, "dataset")
    texts = read_identified_texts(find_sources(["hf:me/titles"]), ReadCounts())
    assert list(texts) == [IdentifiedText("a", "A text.", "Its title")]


def test_parquet_is_streamed_by_configuration_and_split(dataset_hub: Hub) -> None:
    files = {
        "README.md": CARD,
        "long/train-0.parquet": table(0, 5),
        "long/validation-0.parquet": table(5, 2),
        "short/train.parquet": table(9, 1),
    }
    dataset_hub.add("me/texts", files, "dataset")
    assert read("hf:me/texts:long")[0] == [f"Text {n}." for n in range(5)]
    assert read("hf:me/texts/long", split="validation")[0] == ["Text 5.", "Text 6."]
    assert read("hf:me/texts:short")[0] == ["Text 9."]
    with pytest.raises(UserError, match=r"one of its configurations, such as .*: long, short"):
        read("hf:me/texts")
    with pytest.raises(UserError, match=r"one of its configurations, such as .*: long, short"):
        read("hf:me/texts:middle")
    with pytest.raises(UserError, match=r"no split 'test': .*--split: train, validation"):
        read("hf:me/texts:long", split="test")


def test_a_stream_reads_rows_when_they_are_needed(dataset_hub: Hub) -> None:
    files = {f"train-{n}.jsonl": jsonl(n, 1) for n in range(9)}
    dataset_hub.add("me/many", files, "dataset")
    rows = open_split(HubDataset.parse("hf:me/many"), "train")
    dataset_hub.requests.clear()
    assert next(rows.read(["number"])) == {"number": 0}
    assert not dataset_hub.requested("train-5"), "later files are read later"


def test_a_missing_column_is_named_with_those_that_exist(dataset_hub: Hub) -> None:
    dataset_hub.add("me/text", {"train.jsonl": jsonl(0, 3)}, "dataset")
    with pytest.raises(UserError, match=r"no column 'body' \(known: number, text\).*--column"):
        read("hf:me/text", "body")


def test_what_cannot_be_read_is_one_sentence(
    dataset_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset_hub.add("me/gated", {"train.jsonl": jsonl(0, 3)}, "dataset").is_gated = True
    dataset_hub.add("me/empty", {"README.md": "nothing"}, "dataset")
    dataset_hub.add("me/script", {"script.py": "import os"}, "dataset")
    for name, message in {
        "hf:me/none": "me/none: there is no data set of that name",
        "hf:me/empty@v1": "me/empty has no revision 'v1'",
        "hf:me/gated": f"accept its terms at {dataset_hub.url}/datasets/me/gated, then run 'hf",
        "hf:me/empty": "is no data set that can be read: .*doesn't contain any data files",
        "hf:me/script": "scripts are no longer supported",
    }.items():
        with pytest.raises(UserError, match=message):
            read(name)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert len(read("hf:me/gated")[0]) == 3
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set: unset it"):
        read("hf:me/other")


def test_a_format_is_not_stated(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hf:me/text states its format: leave the format out"):
        find_sources(["hf:me/text"], format="csv")
