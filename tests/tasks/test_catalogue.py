"""Named tasks: found by name, read as their makers laid them out, scored by their own metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertwright.errors import UserError
from bertwright.tasks.answers import Prediction
from bertwright.tasks.catalogue import TASKS, find_part, find_task, table_task, tagging_task
from bertwright.tasks.formats.examples import Example, Options, Question, TaggedWords
from bertwright.tasks.formats.tables import Columns


def test_a_task_is_found_in_either_case() -> None:
    assert find_task("CoLA") is find_task("cola") is TASKS["cola"]


def test_an_unknown_task_is_answered_with_a_known_one() -> None:
    with pytest.raises(UserError, match=r"no task 'colla': did you mean 'cola'\?"):
        find_task("colla")


@pytest.mark.parametrize("name", ["sst-2", "sst2", "glue/sst2", "GLUE/SST-2", "glue/sst_2"])
def test_a_task_is_found_however_it_is_spelled(name: str) -> None:
    assert find_task(name) is TASKS["sst-2"]


@pytest.mark.parametrize("name", TASKS)
def test_a_perfect_answer_has_the_best_score(name: str) -> None:
    task = TASKS[name]
    examples = {
        "class": [Example("a", None, label) for label in task.labels] * 2,
        "number": [Example("a", None, number) for number in (1.0, 2.0, 4.0)],
        "tags": [TaggedWords(("a", "b"), ("B-X", "O")), TaggedWords(("c",), ("B-Y",))],
        "option": [Options("a", ("b", "c"), label=1), Options("a", ("b", "c"), label=0)],
        "span": [Question("a", "b c", ("b", "c"), (0, 2)), Question("a", "b c", ("b c",), (0,))],
        "closeness": [Example(f"a{n}", f"b{n}", n) for n in (1.0, 2.0, 4.0)],
        "relevance": [Example("a", "b", 1.0), Example("a", "c", 0.0)],
    }[task.answer.name]
    right = [task.answer.reference(example) for example in examples]
    said = [r[0] if task.answer.name == "span" else r for r in right]
    vectors = [np.eye(len(said), dtype=np.float32)[[n, n]] for n in range(len(said))]
    predictions = [Prediction(a, vectors=v) for a, v in zip(said, vectors, strict=True)]
    found = task.score(examples, predictions)
    assert found == pytest.approx(dict.fromkeys(task.metrics, 1.0))


def test_labels_are_gathered_from_the_training_examples() -> None:
    task = table_task("mine", Columns())
    examples = [Example("x", None, label) for label in ("b", "a", "b", "c")]
    assert task.gathered(examples).labels == ("a", "b", "c")
    tags = tagging_task("mine").gathered([TaggedWords(("x", "y"), ("O", "B-X"))]).labels
    assert tags == ("B-X", "O")
    assert find_task("rte").gathered([]).labels == ("entailment", "not_entailment")
    assert find_task("sts-b").gathered([]).labels == ()


def test_one_label_is_no_task() -> None:
    with pytest.raises(UserError, match=r"task mine: .* only the label 'a'"):
        table_task("mine", Columns()).gathered([Example("x", None, "a")])
    with pytest.raises(UserError, match="no labels"):
        table_task("mine", Columns()).gathered([Example("x")])


def test_the_parts_of_a_folder_are_found_by_name(tmp_path: Path) -> None:
    for name in ("en-ud-train.conllu.gz", "valid.jsonl", "training-notes.txt"):
        (tmp_path / name).touch()
    assert find_part(tmp_path, "train").name == "en-ud-train.conllu.gz"
    assert find_part(tmp_path, "dev").name == "valid.jsonl"
    (tmp_path / "de-ud-train.conllu").touch()
    with pytest.raises(UserError, match=r"named after 'train', found de-ud.*, en-ud.*"):
        find_part(tmp_path, "train")
    with pytest.raises(UserError, match="no such folder"):
        find_part(tmp_path / "absent", "dev")


@pytest.mark.parametrize(
    ("names", "part", "word", "expected"),
    [
        ("msr_paraphrase_train.txt train.tsv", "train", "", "train.tsv"),
        ("dev_ids.tsv dev.tsv.gz", "dev", "", "dev.tsv.gz"),
        ("dev_matched.tsv dev_mismatched.tsv", "dev", "", "dev_matched.tsv"),
        ("dev_matched.tsv dev_mismatched.tsv", "dev", "mismatched", "dev_mismatched.tsv"),
        ("train.data.txt train.gold.txt", "train", "data", "train.data.txt"),
    ],
)
def test_of_several_files_the_part_is_the_plainest(
    tmp_path: Path, names: str, part: Any, word: str, expected: str
) -> None:
    for name in names.split():
        (tmp_path / name).touch()
    assert find_part(tmp_path, part, word).name == expected


GLUE = [
    ("CoLA", 8551, 522, 0.6913),
    ("SST-2", 67349, 436, None),
    ("MRPC", 3668, 408, 0.6838),
    ("STS-B", 5749, 1500, None),
    ("RTE", 2490, 277, 0.5271),
    ("WNLI", 635, 71, 0.5634),
    ("QNLI", 3585, 897, None),
]


@pytest.mark.parametrize(("name", "num_train", "num_dev", "majority"), GLUE)
def test_glue(
    shared_data: Path, name: str, num_train: int, num_dev: int, majority: float | None
) -> None:
    task, folder = find_task(name), shared_data / "glue" / name
    train, dev = task.read(find_part(folder, "train")), task.read(find_part(folder, "dev"))
    assert (len(train), len(dev)) == (num_train, num_dev)
    labels = [example.label for example in dev if isinstance(example, Example)]
    if task.answer.name == "number":
        assert all(isinstance(label, float) and 0 <= label <= 5 for label in labels)
    else:
        assert set(labels) == set(task.labels)
    if majority is not None:
        share = max(labels.count(label) for label in task.labels) / num_dev
        assert share == pytest.approx(majority, abs=0.01)


def test_quotes_and_control_characters_stay_inside_their_row(shared_data: Path) -> None:
    example = find_task("mrpc").read(shared_data / "glue" / "MRPC" / "train.tsv")[0]
    assert isinstance(example, Example)
    assert 'whom he called " the witness "' in example.first
