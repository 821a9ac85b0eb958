"""Named tasks: looked up by name, read from their published files, scored by their metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import TASKS, find_split_file, find_task, table_task, tagging_task
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
)
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.metrics.generated_text import ScoredText
from bertwright.tasks.outputs import Prediction


def test_task_lookup_ignores_case() -> None:
    assert find_task("CoLA") is find_task("cola") is TASKS["cola"]


def test_unknlabelled_lines_suggests_a_known_one() -> None:
    with pytest.raises(UserError, match=r"no task 'colla': did you mean 'cola'\?"):
        find_task("colla")


@pytest.mark.parametrize("name", ["sst-2", "sst2", "glue/sst2", "GLUE/SST-2", "glue/sst_2"])
def test_task_lookup_ignores_spelling_variants(name: str) -> None:
    assert find_task(name) is TASKS["sst-2"]


@pytest.mark.parametrize("name", TASKS)
def test_perfect_predictions_have_the_best_score(name: str) -> None:
    task = TASKS[name]
    examples = {
        "class": [Example("a", None, label) for label in task.labels] * 2,
        "number": [Example("a", None, number) for number in (1.0, 2.0, 4.0)],
        "tags": [TaggedSentence(("a", "b"), ("B-X", "O")), TaggedSentence(("c",), ("B-Y",))],
        "option": [
            MultipleChoice("a", ("b", "c"), label=1),
            MultipleChoice("a", ("b", "c"), label=0),
        ],
        "span": [
            ExtractiveQuestion("a", "b c", ("b", "c"), (0, 2)),
            ExtractiveQuestion("a", "b c", ("b c",), (0,)),
        ],
        "similarity": [Example(f"a{n}", f"b{n}", n) for n in (1.0, 2.0, 4.0)],
        "relevance": [Example("a", "b", 1.0), Example("a", "c", 0.0)],
        "head": [TaggedSentence(("a", "b"), ("2", "0")), TaggedSentence(("c",), ("0",))],
        "text": [Example("a", label="one two three four"), Example("b", label="five six")],
    }[task.output_type.kind_name()]
    references = [task.output_type.reference(example) for example in examples]
    values = [r[0] if task.output_type.kind_name() == "span" else r for r in references]
    vectors = [np.eye(len(values), dtype=np.float32)[[n, n]] for n in range(len(values))]
    predictions = [
        Prediction(value, vectors=vector, scored_text=ScoredText(str(value), 0.0, 1))
        for value, vector in zip(values, vectors, strict=True)
    ]
    scores = task.score(examples, predictions)
    best = {metric: 100.0 if metric == "bleu" else 1.0 for metric in task.metrics}
    assert scores == pytest.approx(best)


def test_labels_are_gathered_from_the_training_examples() -> None:
    task = table_task("mine", Columns())
    examples = [Example("x", None, label) for label in ("b", "a", "b", "c")]
    assert task.with_labels_from(examples).labels == ("a", "b", "c")
    tags = tagging_task("mine").with_labels_from([TaggedSentence(("x", "y"), ("O", "B-X"))]).labels
    assert tags == ("B-X", "O")
    assert find_task("rte").with_labels_from([]).labels == ("entailment", "not_entailment")
    assert find_task("sts-b").with_labels_from([]).labels == ()


def test_single_label_is_refused() -> None:
    with pytest.raises(UserError, match=r"task mine: .* only the label 'a'"):
        table_task("mine", Columns()).with_labels_from([Example("x", None, "a")])
    with pytest.raises(UserError, match="no labels"):
        table_task("mine", Columns()).with_labels_from([Example("x")])


def test_split_files_are_located_by_name(tmp_path: Path) -> None:
    for name in ("en-ud-train.conllu.gz", "valid.jsonl", "training-notes.txt"):
        (tmp_path / name).touch()
    assert find_split_file(tmp_path, "train").name == "en-ud-train.conllu.gz"
    assert find_split_file(tmp_path, "dev").name == "valid.jsonl"
    (tmp_path / "de-ud-train.conllu").touch()
    with pytest.raises(UserError, match=r"named after 'train', got de-ud.*, en-ud.*"):
        find_split_file(tmp_path, "train")
    with pytest.raises(UserError, match="no such folder"):
        find_split_file(tmp_path / "absent", "dev")


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
def test_plainest_of_several_split_files_is_used(
    tmp_path: Path, names: str, part: Any, word: str, expected: str
) -> None:
    for name in names.split():
        (tmp_path / name).touch()
    assert find_split_file(tmp_path, part, word).name == expected


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
    train, dev = (
        task.read_examples(find_split_file(folder, "train")),
        task.read_examples(find_split_file(folder, "dev")),
    )
    assert (len(train), len(dev)) == (num_train, num_dev)
    labels = [example.label for example in dev if isinstance(example, Example)]
    if task.output_type.kind_name() == "number":
        assert all(isinstance(label, float) and 0 <= label <= 5 for label in labels)
    else:
        assert set(labels) == set(task.labels)
    if majority is not None:
        fraction = max(labels.count(label) for label in task.labels) / num_dev
        assert fraction == pytest.approx(majority, abs=0.01)


def test_quotes_and_control_characters_do_not_split_rows(shared_data: Path) -> None:
    example = find_task("mrpc").read_examples(shared_data / "glue" / "MRPC" / "train.tsv")[0]
    assert isinstance(example, Example)
    assert 'whom he called " the witness "' in example.text
