"""Tasks read data sets on the Hub as they read their own files."""

import json
from pathlib import Path

import pytest

from bertwright.cli.task_options import find_task_folder
from bertwright.core.errors import UserError
from bertwright.data.hub.reference import HubDataset
from bertwright.tasks.catalogue import find_task, table_task
from bertwright.tasks.data.hub_splits import hub_split_file
from bertwright.tasks.data.task_data import TaskData, split_file
from bertwright.tasks.evaluation.evaluate import task_examples
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.tables import Columns
from hub_server import Hub, dataset_hub, hub, hub_server

__all__ = ["dataset_hub", "hub", "hub_server"]

CLASSES = """---
dataset_info:
  features:
  - {{name: {column}, dtype: string}}
  - name: label
    dtype:
      class_label:
        names: {{'0': negative, '1': positive}}
---
"""


def add(hub: Hub, name: str, column: str, **splits: list[int]) -> None:
    """Add a data set of texts with classes."""
    files: dict[str, bytes | str] = {"README.md": CLASSES.format(column=column)}
    for split, labels in splits.items():
        rows = ({column: f"Text {n}.", "label": label} for n, label in enumerate(labels))
        files[f"{split}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    hub.add(name, files, "dataset")


def labels(examples: Examples) -> list[object]:
    return [example.label for example in examples]  # type: ignore[attr-defined]


def test_classes_are_numbers_where_the_task_has_numbers(dataset_hub: Hub) -> None:
    add(dataset_hub, "me/sst", "sentence", train=[0, 1, 1], validation=[1, 0], test=[-1, -1])
    task, train, dev = TaskData("sst-2", "hf:me/sst").load_splits()
    assert labels(train) == ["0", "1", "1"]
    assert labels(dev) == ["1", "0"]
    assert labels(task_examples(task, "hf:me/sst")) == ["1", "0"]
    assert not dataset_hub.requested("test.jsonl"), "only the splits of training are read"
    named = table_task("task", Columns("sentence"))
    task, train, _ = TaskData(named, Path("hf:me/sst")).load_splits()
    assert labels(train) == ["negative", "positive", "positive"]
    assert task.labels == ("negative", "positive")


def test_splits_are_downloaded_once(dataset_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    add(dataset_hub, "me/sst", "sentence", train=[0, 1], validation=[1])
    first = split_file(find_task("sst-2"), "hf:me/sst", "train")
    dataset_hub.requests.clear()
    assert split_file(find_task("sst-2"), "hf:me/sst", "train") == first
    assert not dataset_hub.requested("resolve")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert split_file(find_task("sst-2"), "hf:me/sst", "train") == first


def test_columns_of_glue_are_known_by_both_names(dataset_hub: Hub) -> None:
    row = {"premise": "A", "hypothesis": "B", "label": "neutral", "idx": 1}
    rows = json.dumps(row) + "\n"
    splits = ("train", "validation_matched", "validation_mismatched")
    entries = "".join(f"  - {{split: {split}, path: {split}.jsonl}}\n" for split in splits)
    card = f"---\nconfigs:\n- config_name: mnli\n  data_files:\n{entries}---\n"
    files = {"README.md": card} | {f"{split}.jsonl": rows for split in splits}
    dataset_hub.add("me/mnli", files, "dataset")
    dev = split_file(find_task("mnli"), "hf:me/mnli", "dev")
    assert dev is not None
    assert dev.name == "validation_matched.jsonl"
    assert json.loads(dev.read_text()) == {
        "sentence1": "A",
        "sentence2": "B",
        "gold_label": "neutral",
    }


def test_without_a_development_split_a_part_is_held_out(dataset_hub: Hub) -> None:
    add(dataset_hub, "me/sst", "sentence", train=[0, 1] * 10)
    _, train, dev = TaskData("sst-2", "hf:me/sst").load_splits()
    assert (len(train), len(dev)) == (18, 2)
    with pytest.raises(UserError, match="hf:me/sst has no development split: name a file"):
        task_examples(find_task("sst-2"), "hf:me/sst")


def test_what_does_not_fit_a_task_is_named(dataset_hub: Hub) -> None:
    add(dataset_hub, "me/sst", "review", train=[0, 1], validation=[1])
    add(dataset_hub, "me/test", "sentence", test=[0, 1])
    for task, name, message in (
        (
            "sst-2",
            "hf:me/sst",
            "no column 'sentence', which task sst-2 reads: its .* review, label",
        ),
        ("sst-2", "hf:me/test", "hf:me/test has no training split: it has test"),
        ("ner", "hf:me/sst", "hf:me/sst is a table, and task ner reads another format"),
    ):
        with pytest.raises(UserError, match=message):
            hub_split_file(find_task(task), HubDataset.parse(name), "train")


def test_several_tasks_are_configurations_of_one_data_set() -> None:
    assert find_task_folder(Path("hf:nyu-mll/glue"), "STS-B") == Path("hf:nyu-mll/glue/stsb")
