"""Transfer sets: texts labelled by a teacher once, more of them than memory holds."""

import gc
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bertwright.compression.compress import compress
from bertwright.compression.distillation.augmentation import Augmentation
from bertwright.compression.distillation.fine_tuning_loss import TeacherTaskDistillation
from bertwright.compression.distillation.losses import DistillationTermConfig
from bertwright.compression.distillation.transfer import (
    TransferDataset,
    TransferSets,
    transfer_sets,
)
from bertwright.compression.distillation.transfer.dataset import (
    CHUNKS,
    INDEX,
    OUTPUTS,
    TEXTS,
    TransferWriter,
)
from bertwright.compression.distillation.transfer.examples import from_json_line, to_json_line
from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning.layers import prune_layers
from bertwright.core.errors import UserError
from bertwright.core.schedules import ConstantSchedule
from bertwright.data.tokenization.words import split_words
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data import lazy_examples
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example, TaggedSentence, TaskExample
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from small_tasks import classes, numbers, pairs, questions, several_labels, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number")
LABELS = table_task("colours", Columns(), "labels")
TAGS = tagging_task("colours")
WINDOWS = table_task("colours", Columns(), {"kind": "class", "stride": 2})
QUICK = {
    "learning_rate": 3e-3,
    "compile": False,
    "batch_size": 8,
    "calibrate": False,
    "precision": "float32",
}
BY_WORDS = Augmentation.parse({"kind": "words", "num_copies": 3})


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_sets, "CHUNK_SIZE", 12)
    monkeypatch.setattr(lazy_examples, "CHUNK_SIZE", 7)
    monkeypatch.setattr(lazy_examples, "CACHE_SIZE", 5)


def fine_tuned(pretrained, task: Task = CLASSES, examples=None, **settings) -> FineTunedModel:
    examples = examples or classes()
    settings = QUICK | {"epochs": 2} | settings
    model = finetune(pretrained(), task, train=examples, dev=examples, **settings).model
    length = model.example_encoder.max_length
    return FineTunedModel(model.task_model, model.tokenizer, model.task, length, "float32")


def sets_of(teacher: FineTunedModel, folder: Path, examples=None) -> TransferSets:
    return TransferSets(teacher, examples or classes(), folder=folder, unlabelled=None)


TASKS = {
    "class": (CLASSES, classes(), {}),
    "number": (NUMBERS, numbers(), {}),
    "labels": (LABELS, several_labels(), {}),
    "tags": (TAGS, tagged(), {}),
    "windows": (WINDOWS, classes(), {"max_length": 8}),
    "long": (TAGS, tagged(), {"max_length": 8}),
}


@pytest.mark.parametrize("name", TASKS)
def test_stored_outputs_are_the_teachers(pretrained, tmp_path: Path, name: str) -> None:
    task, examples, settings = TASKS[name]
    teacher = fine_tuned(pretrained, task, examples, **settings)
    dataset = sets_of(teacher, tmp_path, examples).examples("unlabelled")
    assert isinstance(dataset, TransferDataset)
    assert len(dataset) == len(examples)
    predictions = [p.value for p in teacher.predict(examples)]
    labels = [e.tags if task is TAGS else e.label for e in dataset]
    assert labels == (pytest.approx(predictions, rel=1e-5) if task is NUMBERS else predictions)
    assert list(dataset) == [dataset[n] for n in range(len(dataset))] == dataset[:]
    sequences = teacher.output_decoder.encode(teacher.example_encoder, examples)
    expected = np.concatenate(teacher.head_outputs(sequences))
    stored = np.concatenate([dataset.outputs(n) for n in range(len(dataset))])
    np.testing.assert_allclose(stored, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.processor
def test_students_of_stored_and_computed_outputs_are_alike(
    pretrained, tmp_path: Path, name: str
) -> None:
    task, examples, settings = TASKS[name]
    teacher = fine_tuned(pretrained, task, examples, **settings)
    dataset = sets_of(teacher, tmp_path, examples).examples("unlabelled")
    losses = [
        DistillationTermConfig.parse({"kind": "outputs"}),
        DistillationTermConfig.parse({"kind": "states"}),
    ]
    students: list[dict[str, torch.Tensor]] = []
    for train in (dataset, list(dataset)):
        distillation = TeacherTaskDistillation(teacher, losses, ConstantSchedule(value=0.5))
        run = {"train": train, "dev": examples, "distillation": distillation, "epochs": 1}
        student = prune_layers(teacher, [0])
        result = finetune(student, teacher.task, **QUICK | run | settings)
        students.append(result.model.task_model.state_dict())
    # The teacher's outputs differ by a rounding error between batches.
    for tensor, other in zip(*(student.values() for student in students), strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-3, atol=3e-4)


def test_an_interrupted_run_computes_missing_chunks_only(
    pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, predict = fine_tuned(pretrained), transfer_sets._predict
    whole = sets_of(teacher, tmp_path / "whole").examples("task", BY_WORDS)
    sizes: list[int] = []

    def interrupted(teacher: FineTunedModel, examples):
        sizes.append(len(examples))
        if len(sizes) == 5:
            raise KeyboardInterrupt
        return predict(teacher, examples)

    monkeypatch.setattr(transfer_sets, "_predict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sets_of(teacher, tmp_path / "cut").examples("task", BY_WORDS)
    (folder,) = (tmp_path / "cut").iterdir()
    # A kill during a write leaves incomplete data.
    for name in (TEXTS, OUTPUTS, INDEX, CHUNKS):
        with open(folder / name, "ab") as file:
            file.write(b'{"text": "cut sh')
    resumed = sets_of(teacher, tmp_path / "cut").examples("task", BY_WORDS)
    assert list(resumed) == list(whole)
    for name in (TEXTS, OUTPUTS, INDEX, CHUNKS):
        (other,) = (tmp_path / "whole").iterdir()
        assert (folder / name).read_bytes() == (other / name).read_bytes()
    chunks = (folder / CHUNKS).read_text().splitlines()
    assert len(sizes) == len(chunks) + 1
    # Three texts with three copies each, or fewer, at a time.
    assert len(chunks) == -(-len(classes()) // 3)
    assert 3 < max(sizes) <= transfer_sets.CHUNK_SIZE
    sets_of(teacher, tmp_path / "cut").examples("task", BY_WORDS)
    assert len(sizes) == len(chunks) + 1
    # A missing file is written again.
    (folder / INDEX).unlink()
    assert list(sets_of(teacher, tmp_path / "cut").examples("task", BY_WORDS)) == list(whole)


def test_chunks_are_kept_up_to_the_first_that_differs(tmp_path: Path) -> None:
    texts = [[Example(f"{c} {n}", label=("a", "b")[:n]) for n in range(3)] for c in "xyz"]
    outputs = [[np.full((n + 1, 2), 10 * c + n, np.float32) for n in range(3)] for c in range(3)]
    writer = TransferWriter(tmp_path, 2)
    assert writer.num_texts == 0
    for key, *chunk in zip("xyz", texts, outputs, strict=True):
        assert not writer.skip_existing(key)
        writer.append(key, *chunk)
        assert list(writer.last_examples()) == chunk[0]
    assert writer.num_texts == 9
    again = TransferWriter(tmp_path, 2)
    for number, key in enumerate("xy"):
        assert not again.skip_existing("other")
        assert again.skip_existing(key)
        assert again.num_texts == 3 * (number + 1)
        assert list(again.last_examples()) == texts[number]
    again.append("w", texts[0], outputs[0])
    assert not again.skip_existing("z")
    head = SimpleNamespace(head_spec=SimpleNamespace(num_outputs=2))
    dataset = TransferDataset(tmp_path, SimpleNamespace(task_model=head))  # type: ignore[arg-type]
    assert list(dataset) == [*texts[0], *texts[1], *texts[0]]
    assert dataset[-1] == texts[0][-1]
    assert dataset[2:5] == [texts[0][2], *texts[1][:2]]
    assert dataset.num_outputs().tolist() == [1, 2, 3] * 3
    for index, expected in enumerate([*outputs[0], *outputs[1], *outputs[0]]):
        assert np.array_equal(dataset.outputs(index), expected)
    first = TransferWriter(tmp_path, 2)
    assert first.skip_existing("x")
    first.truncate()
    assert list(TransferDataset(tmp_path, dataset.teacher)) == texts[0]
    assert not TransferWriter(tmp_path, 2).skip_existing("y")


def test_folders_are_named_by_all_that_copies_depend_on(pretrained, tmp_path: Path) -> None:
    teacher, by_model = fine_tuned(pretrained, epochs=0), Augmentation.parse("masked")
    plain = TransferSets(teacher, classes(), None, tmp_path)
    names = {
        name: (sets._folder_name("task", BY_WORDS, "a"), sets._folder_name("task", by_model, "a"))
        for name, sets in {
            "plain": plain,
            "augmenter": replace(plain, augmenter=pretrained()),
            "other augmenter": replace(plain, augmenter=pretrained("bert", "seed=3")),
            "seed": replace(plain, seed=1),
            "texts": replace(plain, train=classes()[1:]),
        }.items()
    }
    assert names["plain"][0].startswith("task-words-")
    assert [pair[0] for pair in names.values()].count(names["plain"][0]) == 3
    assert len({pair[1] for pair in names.values()}) == len(names)
    unchanged = {replace(plain, seed=seed)._folder_name("task", None, "a") for seed in (0, 1)}
    assert len(unchanged) == 1
    assert unchanged != {plain._folder_name("task", None, "b")}


def test_a_line_is_readable_and_read_again() -> None:
    for example in (
        Example("\u00e9t\u00e9", "\u96e8", label="\u00fc"),
        TaggedSentence(("\u96e8",), ("N",)),
    ):
        line = to_json_line(example)
        assert "\u96e8" in line
        assert from_json_line(line) == example


def test_outputs_of_other_texts_are_not_reused(pretrained, tmp_path: Path) -> None:
    teacher, examples = fine_tuned(pretrained), classes()
    sets_of(teacher, tmp_path).examples("unlabelled")
    changed = [*examples[:20], Example("The red river is unbelievably new"), *examples[21:25]]
    sets = TransferSets(teacher, examples, changed, tmp_path)
    assert [e.text for e in sets.examples("unlabelled")] == [e.text for e in changed]
    reverse = TransferSets(teacher, examples, changed[::-1], tmp_path)
    assert len(reverse.examples("unlabelled")) == len(changed)
    # Another run may still read the first set.
    assert [e.text for e in sets.examples("unlabelled")] == [e.text for e in changed]
    other = fine_tuned(pretrained, seed=1)
    labelled = sets_of(other, tmp_path).examples("unlabelled")
    assert [e.label for e in labelled] == [p.value for p in other.predict(examples)]
    assert len(list(tmp_path.iterdir())) == 3


def test_copies_are_new_and_labels_stay(pretrained, tmp_path: Path) -> None:
    wrong = [Example(e.text, e.pair, "new") for e in pairs()]
    teacher = fine_tuned(pretrained, table_task("colours", Columns(pair="pair")), pairs())
    augmented = list(sets_of(teacher, tmp_path, wrong).examples("task", BY_WORDS))
    texts = [(e.text, e.pair) for e in augmented]
    assert len(set(texts)) == len(texts) > 2 * len(wrong)
    labels = {(e.text, e.pair): e.label for e in augmented}
    assert {labels[e.text, e.pair] for e in wrong} == {"new"}
    copies = [e for e in augmented if (e.text, e.pair) not in {(w.text, w.pair) for w in wrong}]
    predictions = [p.value for p in teacher.predict([Example(e.text, e.pair) for e in copies])]
    assert [e.label for e in copies] == predictions
    assert "old" in predictions
    with pytest.raises(UserError, match="leave it out for this task"):
        tagger = fine_tuned(pretrained, TAGS, tagged())
        sets_of(tagger, tmp_path / "t", tagged()).examples("task", BY_WORDS)


@dataclass(frozen=True)
class CountedExample(Example):
    """An example whose live instances are counted."""


class ManyExamples:
    """Generated examples, and the maximum number alive at once."""

    def __init__(self, number: int) -> None:
        self.number, self.max_alive = number, 0

    def __iter__(self) -> Iterator[TaskExample]:
        for number in range(self.number):
            yield CountedExample(f"the red bird is number {number} and old")
            if number % 50 == 49:
                alive = sum(type(thing) is CountedExample for thing in gc.get_objects())
                self.max_alive = max(self.max_alive, alive)


def test_memory_holds_a_few_chunks_only(pretrained, tmp_path: Path) -> None:
    teacher, examples = fine_tuned(pretrained), ManyExamples(300)
    dataset = TransferSets(teacher, classes(), examples, tmp_path).examples("unlabelled")
    assert len(dataset) == 300
    assert examples.max_alive <= 3 * transfer_sets.CHUNK_SIZE
    sequences = lazy_examples.LazyTaskSequences(
        teacher.output_decoder, teacher.example_encoder, dataset
    )
    assert sum(len(sequence.token_ids) for sequence in sequences) == sequences.lengths.sum()
    for number in range(0, 300, 3):
        assert sequences[number].example_index == number
    assert sequences._make.cache_info().currsize == lazy_examples.CACHE_SIZE


def test_a_method_keeps_its_augmented_texts(pretrained, tmp_path: Path) -> None:
    teacher, method = fine_tuned(pretrained), tmp_path / "method.yaml"
    augmentation = {"kind": "masked", "num_copies": 2, "num_candidates": 4}
    losses = [{"kind": "outputs"}]
    stages = [{"augmentation": augmentation, "objective_weight": 0, "losses": losses}]
    method.write_text(json.dumps({"description": "a", "source": "b", "stages": stages}))
    assert CompressionMethod.load(str(method)).stages[0].augmentation is not None
    data = TaskData(teacher.task, train=classes(), dev=classes())
    work, settings = tmp_path / "work", {**QUICK, "epochs": 1}
    run = {"layers": 1, "work_folder": work, "settings": settings}
    with pytest.raises(UserError, match="with --augmenter"):
        compress(teacher, str(method), data, **run)
    augmenter = pretrained()
    results = (compress(teacher, str(method), data, augmenter=augmenter, **run) for _ in range(2))
    first, second = (result.best.model.task_model.state_dict() for result in results)
    for tensor, other in zip(first.values(), second.values(), strict=True):
        assert torch.equal(tensor, other)
    (folder,) = work.iterdir()
    assert folder.name.startswith("task-masked-")
    lines = [json.loads(line) for line in (folder / TEXTS).read_text().splitlines()]
    assert len(lines) > len(classes())
    assert {line["label"] for line in lines} == {"old", "new"}
    for line, copy in pairwise(lines):
        assert len(split_words(line["text"])) == len(split_words(copy["text"]))


def test_tasks_without_labels_of_texts_are_refused(pretrained, tmp_path: Path) -> None:
    from bertwright.tasks.catalogue import find_task

    squad = fine_tuned(pretrained, find_task("squad2"), questions())
    with pytest.raises(UserError, match="unlabelled texts cannot be used"):
        sets_of(squad, tmp_path, questions()).examples("unlabelled")
    teacher = fine_tuned(pretrained)
    with pytest.raises(UserError, match="there are no unlabelled texts"):
        TransferSets(teacher, classes(), [], tmp_path).examples("unlabelled")
