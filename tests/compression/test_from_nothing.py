"""Students that begin from nothing: drawn by a seed, with what their teacher's table tells."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.compressing import compress
from bertwright.compression.from_nothing import FromNothing
from bertwright.compression.projected_table import projected_table
from bertwright.compression.signals import Heard, Signal
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned, load_fine_tuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordsChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.text.words import words
from small_tasks import TEXTS, classes, pairs, tagged

CLASSES = table_task("colours", Columns())
QUICK = {"rate": 3e-3, "compile": False, "batch": 8, "calibrate": False, "precision": "float32"}
OWN = "extends: bilstm-student\nencoder: {width: 32, embeddings: {width: 24}}\n"
OF_PIECES = f"{OWN}text: {{tokenizer: {{kind: wordpiece, size: 100}}}}\n"


def recipe(tmp_path: Path, stated: str = OWN) -> str:
    file = tmp_path / "own.yaml"
    file.write_text(stated)
    return str(file)


def tuned(model, task=CLASSES, examples=None) -> FineTuned:
    given = examples or classes()
    return finetune(model, task, train=given, dev=given, **QUICK | {"epochs": 8}).model


def test_a_student_of_words_has_those_of_the_texts_and_one_of_pieces_its_teachers(
    pretrained, tmp_path: Path
) -> None:
    teacher = pretrained()
    of_words = FromNothing(recipe(tmp_path), teacher, TEXTS, "teacher").at(0)
    known = {of_words.tokenizer.piece(n) for n in range(of_words.tokenizer.size)}
    assert {w.lower() for text in TEXTS for w in words(text)} <= known
    of_pieces = FromNothing(recipe(tmp_path, OF_PIECES), teacher, TEXTS, "teacher").at(0)
    assert of_pieces.tokenizer is teacher.tokenizer


@pytest.mark.parametrize("stated", [OWN, OF_PIECES])
def test_the_seed_draws_all_but_a_table_that_is_the_teachers(
    pretrained, tmp_path: Path, stated: str
) -> None:
    teacher = pretrained()
    made = {
        (table, seed): FromNothing(recipe(tmp_path, stated), teacher, TEXTS, table).at(seed).model
        for table in ("teacher", "drawn")
        for seed in (0, 1)
    }
    for table in ("teacher", "drawn"):
        first, second = (made[table, seed] for seed in (0, 1))
        again = FromNothing(recipe(tmp_path, stated), teacher, TEXTS, table).at(0).model
        for (name, a), b, c in zip(
            first.named_parameters(), second.parameters(), again.parameters(), strict=True
        ):
            assert torch.equal(a, c), name
            same = torch.equal(a, b) and bool(a.any())
            if "embeddings" not in name:
                assert not same, name
    drawn, told = (made[table, 0].embedding for table in ("drawn", "teacher"))
    torch.testing.assert_close(drawn.square().mean(), told.square().mean())
    # By other seeds as large as these were drawn, and the same directions.
    other = made["teacher", 1].embedding
    torch.testing.assert_close(told / told.norm(), other / other.norm())


@pytest.mark.parametrize("width", [8, 32, 40])
def test_a_table_keeps_what_its_width_can_keep(pretrained, width: int) -> None:
    teacher = pretrained()
    own = teacher.model.embedding.detach().cpu()
    found = projected_table(teacher, teacher.tokenizer, width)
    assert found.shape == (len(own), width)
    left, values, right = torch.linalg.svd(own.double(), full_matrices=False)
    kept = (left[:, :width] * values[:width]) @ right[:width]
    torch.testing.assert_close(found @ found.T, (kept @ kept.T).float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_words_have_the_mean_of_the_pieces_that_the_teacher_reads(pretrained, system: str) -> None:
    teacher, space = pretrained(system), " " if system == "roberta" else ""
    table = teacher.model.embedding.detach().cpu()
    texts = [*TEXTS, "redbird treehouse"]
    other = train_tokenizer(texts, WordsChoice(size=60, lowercase=True))
    ours, theirs = other.specials, teacher.tokenizer.specials
    special = {ours.pad: theirs.pad, ours.unknown: theirs.unknown, ours.mask: theirs.mask}
    special |= {ours.start: theirs.start, ours.end: theirs.end}
    read = [
        [special[n]] if n in special else teacher.tokenizer.encode(space + other.piece(n))
        for n in range(other.size)
    ]
    assert max(map(len, read)) > 1
    vectors = torch.stack([table[pieces].mean(0) for pieces in read])
    found = projected_table(teacher, other, table.shape[1])
    torch.testing.assert_close(found @ found.T, vectors @ vectors.T, rtol=1e-3, atol=1e-4)


def test_a_student_from_nothing_learns_what_its_teacher_says(pretrained, tmp_path: Path) -> None:
    teacher = tuned(pretrained())
    method = tmp_path / "soft.yaml"
    method.write_text(
        "about: a\nsource: b\nstages:\n"
        "  - {labels: 0, signals: [{kind: outputs, distance: squared}], settings: {epochs: 16}}\n"
    )
    data = TaskData(teacher.task, train=classes(), dev=classes())
    student = recipe(tmp_path)
    given = {"student": student, "seeds": 2, "settings": {**QUICK, "dropout": 0.0}}
    found = compress(teacher, str(method), data, out=tmp_path / "small", **given)
    assert found.of_teacher > 0.9
    assert max(run.best.score for run in found.runs) > 0.9
    small = load(tmp_path / "small")
    assert isinstance(small, FineTuned)
    assert small.tokenizer.kind == "words"
    with pytest.raises(UserError, match="leave --layers out"):
        compress(teacher, str(method), data, layers=1, **given)
    with pytest.raises(UserError, match="there is no recipe 'bilstm-studend-base': did you mean"):
        compress(teacher, str(method), data, student="bilstm-studend-base")


def test_a_tagger_can_begin_from_nothing(pretrained, tmp_path: Path) -> None:
    teacher = tuned(pretrained(), tagging_task("colours"), tagged())
    data = TaskData(teacher.task, train=tagged(), dev=tagged())
    given = {"student": recipe(tmp_path), "settings": {**QUICK, "epochs": 1}}
    found = compress(teacher, "output-distillation", data, **given)
    assert found.best.model.tokenizer.kind == "words"


def test_neither_padding_nor_neighbours_change_an_answer_of_a_student(
    pretrained, tmp_path: Path
) -> None:
    student = FromNothing(recipe(tmp_path), pretrained(), TEXTS, "teacher").at(0)
    own = finetune(student, CLASSES, train=classes(), dev=classes(), epochs=1, **QUICK).model
    model = FineTuned(own.net, own.tokenizer, own.task, own.maker.length, "float32")
    rows = model.answering.rows(model.maker, [*classes(), *classes()[:3]])
    rows[0].pieces[3:-1] = []
    together = model.outputs(rows)
    for row, output in zip(rows, together, strict=True):
        (alone,) = model.outputs([row])
        torch.testing.assert_close(torch.tensor(alone), torch.tensor(output), rtol=1e-5, atol=1e-6)


def test_a_student_that_does_not_read_what_is_hidden_is_refused(pretrained, tmp_path: Path) -> None:
    teacher = tuned(pretrained("roberta"))
    data = TaskData(teacher.task, train=classes(), dev=classes())
    with pytest.raises(UserError, match="hides words as <mask>, which its student does not read"):
        compress(teacher, "bilstm-soft", data, student=recipe(tmp_path), settings=QUICK)


def test_a_student_may_read_apart_what_its_teacher_reads_in_one(pretrained, tmp_path: Path) -> None:
    examples = pairs()
    teacher = tuned(pretrained(), examples=examples)
    data = TaskData(teacher.task, train=examples, dev=examples)
    head = {"kind": "dense", "activation": "relu", "read": "apart"}
    settings = {**QUICK, "epochs": 1, "head": head}
    small = compress(
        teacher, "output-distillation", data, student=recipe(tmp_path), settings=settings
    ).best.model
    assert small.maker.apart
    assert not teacher.maker.apart
    small.save(tmp_path / "small")
    again = load_fine_tuned(tmp_path / "small")
    assert again.predict(examples) == small.predict(examples)


@given(st.lists(st.floats(-50, 50, width=32), min_size=6, max_size=6))
def test_the_squared_distance_is_nothing_where_logits_match(logits: list[float]) -> None:
    outputs = torch.tensor(logits).view(2, 3).requires_grad_()
    signal = Signal.choose({"kind": "outputs", "distance": "squared", "mean": True})
    choice: object = None
    comparison = signal.between(choice, choice)  # type: ignore[arg-type]
    same = outputs, outputs.detach().clone(), None, None
    heard = Heard(*same, {}, {}, torch.ones(2, 1).bool(), 0.0)
    loss = comparison(heard)
    assert loss.item() == 0.0
    loss.backward()
    assert not outputs.grad.any()
    apart = replace(heard, taught=outputs.detach() + 2.0)
    assert comparison(apart).item() == pytest.approx(2 * 4.0, rel=1e-3)
