"""Texts that a teacher answers: what it says, once, of more than memory holds."""

import gc
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.compression.augmentation import Augmentation
from bertwright.compression.compressing import compress
from bertwright.compression.distillation import Distillation
from bertwright.compression.method import Method
from bertwright.compression.signals import Signal
from bertwright.compression.students import shortened
from bertwright.compression.transfer import AnsweredTexts, TransferSets, sets
from bertwright.compression.transfer.answered import CHUNKS, INDEX, OUTPUTS, TEXTS
from bertwright.errors import UserError
from bertwright.schedules import Constant
from bertwright.tasks import distant
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import AnyExample, Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from bertwright.text.words import words
from small_tasks import classes, numbers, pairs, questions, several_labels, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number")
LABELS = table_task("colours", Columns(), "labels")
TAGS = tagging_task("colours")
WINDOWS = table_task("colours", Columns(), {"kind": "class", "stride": 2})
QUICK = {"rate": 3e-3, "compile": False, "batch": 8, "calibrate": False, "precision": "float32"}
BY_WORDS = Augmentation.choose({"kind": "words", "copies": 3})


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "AT_ONCE", 12)
    monkeypatch.setattr(distant, "AT_ONCE", 7)
    monkeypatch.setattr(distant, "HELD", 5)


def tuned(pretrained, task: Task = CLASSES, examples=None, **settings) -> FineTuned:
    given = examples or classes()
    found = finetune(pretrained(), task, train=given, dev=given, **QUICK | {"epochs": 2} | settings)
    own = found.model
    return FineTuned(own.net, own.tokenizer, own.task, own.maker.length, "float32")


def of(teacher: FineTuned, folder: Path, examples=None, **settings) -> TransferSets:
    return TransferSets(teacher, examples or classes(), folder=folder, transfer=None, **settings)


TASKS = {
    "class": (CLASSES, classes(), {}),
    "number": (NUMBERS, numbers(), {}),
    "labels": (LABELS, several_labels(), {}),
    "tags": (TAGS, tagged(), {}),
    "rows": (WINDOWS, classes(), {"length": 8}),
    "long": (TAGS, tagged(), {"length": 8}),
}


@pytest.mark.parametrize("name", TASKS)
def test_what_is_kept_is_what_the_teacher_says(pretrained, tmp_path: Path, name: str) -> None:
    task, examples, settings = TASKS[name]
    teacher = tuned(pretrained, task, examples, **settings)
    found = of(teacher, tmp_path, examples).of("transfer")
    assert isinstance(found, AnsweredTexts)
    assert len(found) == len(examples)
    said = [p.answer for p in teacher.predict(examples)]
    known = [e.tags if task is TAGS else e.label for e in found]
    assert known == (pytest.approx(said, rel=1e-5) if task is NUMBERS else said)
    assert list(found) == [found[n] for n in range(len(found))] == found[:]
    rows = teacher.answering.rows(teacher.maker, examples)
    whole = np.concatenate(teacher.outputs(rows))
    kept = np.concatenate([found.outputs(n) for n in range(len(found))])
    np.testing.assert_allclose(kept, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.processor
def test_a_student_learns_alike_from_what_is_on_the_disk_and_what_is_held(
    pretrained, tmp_path: Path, name: str
) -> None:
    task, examples, settings = TASKS[name]
    teacher = tuned(pretrained, task, examples, **settings)
    found = of(teacher, tmp_path, examples).of("transfer")
    signals = [Signal.choose({"kind": "outputs"}), Signal.choose({"kind": "states"})]
    students: list[dict[str, torch.Tensor]] = []
    for train in (found, list(found)):
        told = Distillation(teacher, signals, Constant(value=0.5))
        given = {"train": train, "dev": examples, "teacher": told, "epochs": 1}
        student = shortened(teacher, [0])
        result = finetune(student, teacher.task, **QUICK | given | settings)
        students.append(result.model.net.state_dict())
    # Other neighbours, when the teacher was asked, are worth a rounding.
    for tensor, other in zip(*(own.values() for own in students), strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-3, atol=3e-4)


def test_a_run_that_was_stopped_asks_for_what_is_missing(
    pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, said = tuned(pretrained), sets._said
    whole = of(teacher, tmp_path / "whole").of("task", BY_WORDS)
    asked: list[int] = []

    def stopping(teacher: FineTuned, examples):
        asked.append(len(examples))
        if len(asked) == 5:
            raise KeyboardInterrupt
        return said(teacher, examples)

    monkeypatch.setattr(sets, "_said", stopping)
    with pytest.raises(KeyboardInterrupt):
        of(teacher, tmp_path / "cut").of("task", BY_WORDS)
    (folder,) = (tmp_path / "cut").iterdir()
    # What a kill in the midst of writing leaves behind.
    for name in (TEXTS, OUTPUTS, INDEX, CHUNKS):
        with open(folder / name, "ab") as opened:
            opened.write(b'{"text": "cut sh')
    resumed = of(teacher, tmp_path / "cut").of("task", BY_WORDS)
    assert list(resumed) == list(whole)
    for name in (TEXTS, OUTPUTS, INDEX, CHUNKS):
        (other,) = (tmp_path / "whole").iterdir()
        assert (folder / name).read_bytes() == (other / name).read_bytes()
    chunks = (folder / CHUNKS).read_text().splitlines()
    assert len(asked) == len(chunks) + 1
    of(teacher, tmp_path / "cut").of("task", BY_WORDS)
    assert len(asked) == len(chunks) + 1
    # A file that a copy has left out is written again.
    (folder / INDEX).unlink()
    assert list(of(teacher, tmp_path / "cut").of("task", BY_WORDS)) == list(whole)


def test_answers_to_other_texts_are_not_taken_for_these(pretrained, tmp_path: Path) -> None:
    teacher, examples = tuned(pretrained), classes()
    of(teacher, tmp_path).of("transfer")
    changed = [*examples[:20], Example("The red river is unbelievably new"), *examples[21:25]]
    known = TransferSets(teacher, examples, changed, tmp_path)
    assert [e.first for e in known.of("transfer")] == [e.first for e in changed]
    elsewhere = TransferSets(teacher, examples, changed[::-1], tmp_path)
    assert len(elsewhere.of("transfer")) == len(changed)
    # Another run may be learning from those.
    assert [e.first for e in known.of("transfer")] == [e.first for e in changed]
    other = tuned(pretrained, seed=1)
    theirs = of(other, tmp_path).of("transfer")
    assert [e.label for e in theirs] == [p.answer for p in other.predict(examples)]
    assert len(list(tmp_path.iterdir())) == 3


def test_copies_are_new_and_labels_stay(pretrained, tmp_path: Path) -> None:
    wrong = [Example(e.first, e.second, "new") for e in pairs()]
    teacher = tuned(pretrained, table_task("colours", Columns(second="pair")), pairs())
    found = list(of(teacher, tmp_path, wrong).of("task", BY_WORDS))
    texts = [(e.first, e.second) for e in found]
    assert len(set(texts)) == len(texts) > 2 * len(wrong)
    theirs = {(e.first, e.second): e.label for e in found}
    assert {theirs[e.first, e.second] for e in wrong} == {"new"}
    copies = [e for e in found if (e.first, e.second) not in {(w.first, w.second) for w in wrong}]
    said = [p.answer for p in teacher.predict([Example(e.first, e.second) for e in copies])]
    assert [e.label for e in copies] == said
    assert "old" in said
    with pytest.raises(UserError, match="leave it out for this task"):
        tags = tuned(pretrained, TAGS, tagged())
        of(tags, tmp_path / "t", tagged()).of("task", BY_WORDS)


@dataclass(frozen=True)
class Live(Example):
    """A text that is counted while it is held."""


class Endless:
    """Many texts, none of which is kept."""

    def __init__(self, number: int) -> None:
        self.number, self.most = number, 0

    def __iter__(self) -> Iterator[AnyExample]:
        for number in range(self.number):
            yield Live(f"the red bird is number {number} and old")
            if number % 50 == 49:
                held = sum(type(each) is Live for each in gc.get_objects())
                self.most = max(self.most, held)


def test_no_more_texts_are_held_than_are_answered_at_once(pretrained, tmp_path: Path) -> None:
    teacher, texts = tuned(pretrained), Endless(300)
    found = TransferSets(teacher, classes(), texts, tmp_path).of("transfer")
    assert len(found) == 300
    assert texts.most <= 3 * sets.AT_ONCE
    rows = distant.DistantRows(teacher.answering, teacher.maker, found)
    assert sum(len(row.pieces) for row in rows) == rows.lengths.sum()
    for number in range(0, 300, 3):
        assert rows[number].example == number
    assert len(rows._held) == distant.HELD


def test_a_method_learns_from_changed_texts_that_can_be_read(pretrained, tmp_path: Path) -> None:
    teacher, method = tuned(pretrained), tmp_path / "own.yaml"
    changes = {"kind": "masked", "copies": 2, "candidates": 4}
    stages = [{"augmentation": changes, "labels": 0, "signals": [{"kind": "outputs"}]}]
    method.write_text(json.dumps({"about": "a", "source": "b", "stages": stages}))
    assert Method.load(str(method)).stages[0].augmentation is not None
    data = TaskData(teacher.task, train=classes(), dev=classes())
    given = {"layers": 1, "work": tmp_path / "work", "settings": {**QUICK, "epochs": 1}}
    with pytest.raises(UserError, match="with --namer"):
        compress(teacher, str(method), data, **given)
    namer = pretrained()
    first, second = (
        compress(teacher, str(method), data, namer=namer, **given).best.model.net.state_dict()
        for _ in range(2)
    )
    for tensor, other in zip(first.values(), second.values(), strict=True):
        assert torch.equal(tensor, other)
    (folder,) = (tmp_path / "work").iterdir()
    assert folder.name.startswith("task-masked-")
    lines = [json.loads(line) for line in (folder / TEXTS).read_text().splitlines()]
    assert len(lines) > len(classes())
    assert {line["label"] for line in lines} == {"old", "new"}
    for line, copy in pairwise(lines):
        assert len(words(line["text"])) == len(words(copy["text"]))


def test_what_no_text_bears_is_said(pretrained, tmp_path: Path) -> None:
    from bertwright.tasks.catalogue import find_task

    asked = find_task("squad2")
    with pytest.raises(UserError, match="what a text alone does not bear"):
        of(tuned(pretrained, asked, questions()), tmp_path, questions()).of("transfer")
    teacher = tuned(pretrained)
    with pytest.raises(UserError, match="there are no transfer texts"):
        TransferSets(teacher, classes(), [], tmp_path).of("transfer")
