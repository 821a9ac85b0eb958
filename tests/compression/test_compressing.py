"""Every method makes a smaller model of a fine-tuned one, which does the same."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertwright.compression import compressing
from bertwright.compression.compressing import compress, num_parameters
from bertwright.compression.method import METHODS, Method, names_in
from bertwright.compression.quantisation import Quantised
from bertwright.compression.quantisation.sharpness import sharpness
from bertwright.compression.static_table import static_table
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.randomness import sample
from bertwright.tasks.answers import Answer
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned, load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from small_tasks import classes, questions, tagged

CLASSES = table_task("colours", Columns())
TAGS = tagging_task("colours")
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "calibrate": False}


@pytest.fixture(scope="module")
def taught(pretrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of teachers who have learned once, what each test makes its own student of."""
    folder, model = tmp_path_factory.mktemp("taught"), pretrained("bert", "encoder.depth.layers=4")
    for name, (task, examples) in {
        "classes": (CLASSES, classes()),
        "tags": (TAGS, tagged()),
    }.items():
        given = {"train": examples, "dev": examples, "epochs": 4, "out": folder / name}
        finetune(model, task, **given, **QUICK)
    return folder


@pytest.fixture
def teacher(taught: Path) -> FineTuned:
    return load_fine_tuned(taught / "classes")


def data_of(teacher: FineTuned, examples=None) -> TaskData:
    examples = examples or classes()
    return TaskData(teacher.task, train=examples, dev=examples)


@pytest.mark.parametrize("name", names_in(METHODS))
def test_every_method_leaves_a_smaller_model(
    pretrained, teacher: FineTuned, tmp_path: Path, name: str
) -> None:
    settings, how = {**QUICK, "epochs": 1}, Method.load(name)
    stated = how.model_dump(mode="json", by_alias=True)
    for stage in stated["stages"]:
        # A toy has few heads, and of few texts few copies.
        for signal in stage["signals"]:
            signal |= {"heads": 2} if signal["kind"] == "relations" else {}
        if stage["augmentation"] is not None:
            stage["augmentation"]["copies"] = 2
    method = tmp_path / "method.yaml"
    method.write_text(json.dumps(stated))
    layers = None if how.whole or how.student else 2
    given = {"layers": layers, "alone": True, "out": tmp_path / "s", "settings": settings}
    found = compress(teacher, str(method), data_of(teacher), namer=pretrained(), **given)
    small = load(tmp_path / "s")
    assert isinstance(small, FineTuned)
    assert len(small.net.encoder.blocks) == (1 if how.student else layers or 4)
    assert small.predict(["a red bird is old"]) == found.best.model.predict(["a red bird is old"])
    told = found.as_dict()
    assert told == json.loads((tmp_path / "s" / "compression.json").read_text())
    assert told["parameters"] == sum(p.numel() for p in small.net.parameters())
    # A toy is smaller than a whole student.
    assert told["smaller"] > 1 or how.student or how.stages[0].settings.get("adaptation")
    assert len(told["alone"]) == len(told["scores"]) == 1


@pytest.mark.parametrize("name", ["tiny-task", "heads-units-iterative", "albert-share"])
def test_a_run_that_was_stopped_goes_on_behind_its_last_stage(
    teacher: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    learned: list[FineTuneResult] = []

    def counted(*given: Any, **settings: Any) -> FineTuneResult:
        learned.append(finetune(*given, **settings))
        return learned[-1]

    def stopped(*given: Any, **settings: Any) -> FineTuneResult:
        if learned:
            raise KeyboardInterrupt
        return counted(*given, **settings)

    def found(**more: Any) -> dict[str, torch.Tensor]:
        settings = {**QUICK, "epochs": 1, "seed": 3}
        done = compress(teacher, name, data_of(teacher), settings=settings, **more)
        return done.best.model.net.state_dict()

    whole = found()
    monkeypatch.setattr(compressing, "finetune", stopped)
    with pytest.raises(KeyboardInterrupt):
        found(work=tmp_path / "work")
    monkeypatch.setattr(compressing, "finetune", counted)
    continued = found(work=tmp_path / "work")
    assert len(learned) == len(Method.load(name).stages) == 2
    for tensor, other in zip(whole.values(), continued.values(), strict=True):
        assert torch.equal(tensor, other)
    (before,) = (tmp_path / "work").glob("student-*")
    assert isinstance(load(before), FineTuned)
    learned.clear()
    with pytest.raises(UserError, match=r"task.json is no folder that can be written to"):
        found(work=before / "task.json")
    assert not learned


@pytest.mark.parametrize("name", ["heads-units-iterative", "qbert-mixed"])
def test_who_learns_alone_is_no_larger(
    teacher: FineTuned, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    learned: list[FineTuneResult] = []

    def kept(*given: Any, **settings: Any) -> FineTuneResult:
        learned.append(finetune(*given, **settings))
        return learned[-1]

    monkeypatch.setattr(compressing, "finetune", kept)
    compress(teacher, name, data_of(teacher), alone=True, settings={**QUICK, "epochs": 1})
    taught, alone = learned[: len(learned) // 2], learned[len(learned) // 2 :]
    for one, other in zip(taught, alone, strict=True):
        assert one.training.net.adaptation == other.training.net.adaptation
        assert num_parameters(one.model) == num_parameters(other.model)
        assert other.training.teaching is None


def test_a_stage_says_how_it_is_learned_unless_the_user_does(
    teacher: FineTuned, tmp_path: Path
) -> None:
    stages = [{"settings": {"length": 16, "head": {"kind": "dense", "read": "mean"}}}]
    own = tmp_path / "own.yaml"
    own.write_text(json.dumps({"about": "a trial", "source": "us", "stages": stages}))
    settings = {**QUICK, "epochs": 0}
    lengths = [teacher.maker.length]
    for stated in ({}, {"length": 12}):
        found = compress(teacher, str(own), data_of(teacher), settings={**settings, **stated})
        assert found.best.model.net.choice.read == "mean"
        lengths.append(found.best.model.maker.length)
    assert lengths[1:] == [16, 12]
    assert lengths[0] > 16


def test_what_rounds_between_weights_learns_again(teacher: FineTuned, tmp_path: Path) -> None:
    rounding = {"kind": "quantised", "activations": {}}
    stages = [{"settings": {"adaptation": {**rounding, "bits": bits}}} for bits in (8, 4)]
    own = tmp_path / "own.yaml"
    own.write_text(json.dumps({"about": "a trial", "source": "us", "stages": stages}))
    found = compress(teacher, str(own), data_of(teacher), settings={**QUICK, "epochs": 1})
    assert 4 in {grid.bits for grid in found.best.model.net.grids.values()}


def test_teacher_and_student_are_scored_alike(pretrained) -> None:
    asked = Task("asked", Answer.choose({"kind": "span", "unanswerable": True}))
    given = {"train": questions(), "dev": questions(), "epochs": 1, **QUICK}
    teacher = finetune(pretrained("bert"), asked, **given).model
    usual = compress(teacher, "layer-drop", data_of(teacher, questions()), settings=QUICK)
    answer = teacher.task.answer
    silent = answer.model_copy(update={"threshold": -1e9, "threshold_found": True})
    teacher.task = replace(teacher.task, answer=silent)
    teacher.answering = silent.build((), 1.0)
    settled = compress(teacher, "layer-drop", data_of(teacher, questions()), settings=QUICK)
    assert settled.of_teacher == usual.of_teacher != evaluate(teacher, questions())["score"]


def test_the_share_that_is_zero_is_told(teacher: FineTuned, tmp_path: Path) -> None:
    stages = [{"settings": {"adaptation": {"kind": "magnitude", "kept": 0.3}}}]
    method = {"about": "a trial", "source": "us", "whole": True, "stages": stages}
    (tmp_path / "own.yaml").write_text(json.dumps(method))
    settings = {**QUICK, "epochs": 1}
    for name, zeros in ((str(tmp_path / "own.yaml"), 0.7), ("layer-drop", 0.0)):
        found = compress(teacher, name, data_of(teacher), settings=settings).as_dict()
        assert found["zeros"] == pytest.approx(zeros, abs=0.01)


def test_a_student_of_another_kind_learns_from_texts_that_nobody_labelled(
    pretrained, taught: Path
) -> None:
    teacher = load_fine_tuned(taught / "tags")
    student = pretrained("elmo")
    words = [example.words for example in tagged()]
    unlabelled = [type(tagged()[0])(own[:4]) for own in words]
    found = compress(
        teacher,
        "pre-trained-distillation",
        data_of(teacher, tagged()),
        student=student,
        transfer=unlabelled,
        settings={**QUICK, "epochs": 1},
    )
    assert found.best.model.net.recipe.name == student.model.recipe.name


def test_the_same_seed_makes_the_same_student(teacher: FineTuned) -> None:
    first, second = (
        compress(teacher, "pkd-skip", data_of(teacher), settings={**QUICK, "seed": 3})
        for _ in range(2)
    )
    texts = ["a red bird is old", "the new house"]
    assert first.best.model.predict(texts) == second.best.model.predict(texts)


def test_few_bits_are_few_bytes_and_a_beginning_like_any_other(
    teacher: FineTuned, tmp_path: Path
) -> None:
    settings = {**QUICK, "epochs": 1}
    small = compress(teacher, "q8-qat", data_of(teacher), settings=settings, out=tmp_path / "q")
    told, file = small.as_dict(), tmp_path / "q" / "model.safetensors"
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert told["bytes"] == file.stat().st_size - header
    assert 3 < told["smaller_in_bytes"] < 4
    bits = {"adaptation": {"kind": "quantised", "bits": (2, 3, 4, 5)}}
    mixed = compress(teacher, "qbert-mixed", data_of(teacher), settings=settings | bits)
    assert {grid.bits for grid in mixed.best.model.net.grids.values()} == {2, 3, 4, 5, 8}
    assert mixed.as_dict()["bytes"] < told["bytes"]
    shorter = compress(small.best.model, "layer-drop", data_of(teacher), settings=settings)
    assert shorter.as_dict()["smaller_in_bytes"] < 1


def test_the_sharpest_blocks_have_more_bits(teacher: FineTuned) -> None:
    settings = {**QUICK, "epochs": 1}
    small = compress(teacher, "qbert-mixed", data_of(teacher), settings=settings).best.model
    adaptation = small.net.adaptation
    assert isinstance(adaptation, Quantised)
    assert sorted(adaptation.bits) == [2, 2, 3, 3]
    # In that order, which says what the subsets are.
    found = sharpness(teacher, sample(classes(), len(classes())))
    high = {own.block for own in sorted(found, key=lambda each: -each.omega)[:2]}
    assert {block for block, bits in enumerate(adaptation.bits) if bits == 3} == high


def test_layers_of_a_teacher_are_read_as_it_is(pretrained) -> None:
    given = {"train": classes(), "dev": classes(), "epochs": 1, **QUICK}
    model = pretrained("electra", "encoder.depth.layers=2")
    for head in (None, {"kind": "dense", "read": "mean"}):
        teacher = finetune(model, CLASSES, **given, head=head).model
        for method in ("theseus-linear", "layer-drop"):
            settings = {**QUICK, "epochs": 1}
            small = compress(teacher, method, data_of(teacher), settings=settings).best.model
            assert small.net.choice == teacher.net.choice


def test_what_is_no_method_is_said(teacher: FineTuned, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no method 'pkd-skp': did you mean 'pkd-skip'"):
        compress(teacher, "pkd-skp", data_of(teacher))
    file = tmp_path / "own.yaml"
    file.write_text("about: a\nsource: b\nstages: [{signals: [{kind: sates}]}]\n")
    with pytest.raises(UserError, match="'sates'"):
        compress(teacher, str(file), data_of(teacher))
    file.write_text("about: a\nsource: b\nstages: [{replacing: 1, signals: [outputs]}]\n")
    with pytest.raises(UserError, match="learns from labels alone"):
        compress(teacher, str(file), data_of(teacher))
    file.write_text("about: a\nsource: b\nstages: [{labels: 0}]\n")
    with pytest.raises(UserError, match="labels weighs them beside signals, and there are none"):
        compress(teacher, str(file), data_of(teacher))
    file.write_text("about: a\nsource: b\nstages: [{settings: {seeds: 2}}]\n")
    with pytest.raises(UserError, match="leave seed and seeds out"):
        compress(teacher, str(file), data_of(teacher))
    file.write_text("about: a\nsource: b\nstages: [{}, {bits: {low: 2}}]\n")
    with pytest.raises(UserError, match="bits are of rounded weights"):
        compress(teacher, str(file), data_of(teacher))
    with pytest.raises(UserError, match="nothing reads the texts of --transfer: leave it out"):
        compress(teacher, "pkd-skip", data_of(teacher), transfer=classes())
    with pytest.raises(UserError, match="say --seeds, and no seeds="):
        compress(teacher, "layer-drop", data_of(teacher), settings={"seeds": 2})
    with pytest.raises(UserError, match="5 of 4 layers"):
        compress(teacher, "layer-drop", data_of(teacher), layers=5)
    for name in ("heads-units-iterative", "qbert-mixed"):
        with pytest.raises(UserError, match="leave --student and --layers out"):
            compress(teacher, name, data_of(teacher), layers=2)
    other = [Example(e.first, label=f"so {e.label}") for e in classes()]
    with pytest.raises(UserError, match="has no label"):
        compress(teacher, "layer-drop", data_of(teacher, other))


def test_what_does_not_suit_is_said_before_the_teacher_is_asked(
    pretrained, teacher: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("the teacher was asked")

    monkeypatch.setattr(FineTuned, "outputs", refuse)
    monkeypatch.setattr(FineTuned, "predict", refuse)
    late = tmp_path / "late.yaml"
    stages = [
        {"texts": "transfer", "labels": 0, "signals": [{"kind": "outputs"}]},
        {"signals": [{"kind": "states", "layers": {"pairs": "2-5"}}]},
    ]
    late.write_text(json.dumps({"about": "a", "source": "b", "stages": stages}))
    empty = tmp_path / "empty.yaml"
    stages = [{}, {"settings": {"adaptation": {"kind": "magnitude", "kept": 1e-4}}}]
    empty.write_text(json.dumps({"about": "a", "source": "b", "stages": stages}))
    many = tmp_path / "many.yaml"
    stages = [{}, {"settings": {"adaptation": {"kind": "quantised", "bits": [8, 4, 2]}}}]
    many.write_text(json.dumps({"about": "a", "source": "b", "stages": stages}))
    below = tmp_path / "below.yaml"
    stages = [{"signals": [{"kind": "attention", "layers": {"pairs": "0-0"}}]}]
    below.write_text(json.dumps({"about": "a", "source": "b", "stages": stages}))
    table = static_table(pretrained("bert"), 8)
    for method, given, message in [
        (str(late), {}, "no layers 2 and 5: the student has 2, the teacher 4"),
        (str(empty), {}, "0.0001 in the end leaves none of the"),
        (str(many), {}, "3 numbers for 2 blocks"),
        (str(below), {}, "the embeddings .* look at nothing"),
        ("relations", {"student": table}, "without blocks there are no queries"),
        ("pkd-skip", {"layers": 1}, "no pair of layers is left of a student with 1"),
        ("theseus-linear", {"layers": 3}, "4 blocks do not fall into 3 equal parts"),
        ("theseus-linear", {"student": pretrained("bert")}, "others of its own kind"),
        ("layer-drop", {"student": "bert-tiny", "layers": 1}, "has the layers of its recipe"),
        ("albert-share", {"student": "bert-tiny"}, "leave the recipe bert-tiny out"),
    ]:
        with pytest.raises(UserError, match=message):
            compress(teacher, method, data_of(teacher), **given)


def test_a_table_has_no_layers_to_take(pretrained, teacher: FineTuned) -> None:
    table = static_table(pretrained("bert"), 8)
    with pytest.raises(UserError, match="the model has no layers of which some could be taken"):
        compress(teacher, "pkd-skip", data_of(teacher), student=table, layers=1)
    of_table = finetune(table, CLASSES, train=classes(), dev=classes(), epochs=1, **QUICK).model
    with pytest.raises(UserError, match="the model has no layers of which some could be taken"):
        compress(of_table, "pkd-skip", data_of(of_table))
    with pytest.raises(UserError, match="there is no block of which anything could go"):
        compress(of_table, "heads-units-iterative", data_of(of_table))
