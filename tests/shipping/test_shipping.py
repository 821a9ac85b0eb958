"""The largest model that keeps to a goal is what is shipped."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bertwright.bench.artefacts.comparing import Artefact
from bertwright.cli.application import app
from bertwright.compression.quantisation.sharpness import sharpness
from bertwright.compression.static_table import static_table
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.writing import export_onnx
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.shipping.candidates import Candidates
from bertwright.shipping.forms import PLAIN, Form, shipped_bytes
from bertwright.shipping.goal import Goal
from bertwright.shipping.shapes import Shape
from bertwright.shipping.shipping import Shipment
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes

QUICK = {"epochs": 1, "compile": False}


@pytest.fixture(scope="module")
def tuned() -> FineTuned:
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer)
    colours = table_task("colours", Columns())
    return finetune(model, colours, train=classes(), dev=classes(), **QUICK).model


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what was exported once stays."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it does not matter how fast what is shipped turns out."""

    def seconds(artefacts: Sequence[Artefact], *_: Any) -> list[list[float]]:
        return [[1.0]] * len(artefacts)

    monkeypatch.setattr("bertwright.shipping.shipping.seconds_in_turns", seconds)


def shipment(model: FineTuned, goal: str, said: list[str], work: Path | None = None) -> Shipment:
    data = TaskData(model.task, train=classes(), dev=classes())
    method = "output-distillation"
    return Shipment(model, Goal.of(goal), data, method, said.append, QUICK, work)


@given(
    st.floats(0.1, 900),
    st.floats(0.1, 90),
    st.integers(1, 64),
    st.integers(3, 512),
    st.floats(0.1, 9),
)
def test_a_goal_says_what_it_was_told(
    size: float, latency: float, rows: int, length: int, loss: float
) -> None:
    said = f"size<={size:.3f}MB, latency<={latency:.3f}ms@{rows}x{length}, loss<={loss:.2f}"
    goal = Goal.of(said)
    assert goal.bytes == pytest.approx(1e6 * size, abs=1e3)
    assert goal.milliseconds == pytest.approx(latency, abs=1e-3)
    assert (goal.rows, goal.length) == (rows, length)
    assert goal.keeps(goal.bytes, goal.milliseconds)
    assert not goal.keeps(goal.bytes * 1.01, goal.milliseconds)
    assert not goal.keeps(goal.bytes, goal.milliseconds * 1.01)
    assert not goal.missed(goal.bytes, goal.milliseconds, 0.99 * goal.points / 100)
    (missed,) = goal.missed(goal.bytes, goal.milliseconds, (goal.points + 1) / 100)
    assert missed.startswith("loss<=")
    assert missed.endswith("1 points too much")
    assert len(goal.missed(2 * goal.bytes, 2 * goal.milliseconds, 1)) == 3


@given(st.integers(1, 2000), st.data())
def test_what_may_just_be_lost_is_not_too_much(examples: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, examples))
    left = data.draw(st.integers(0, right))
    lost = right / examples - left / examples
    goal = Goal(points=100 * (right - left) / examples)
    assert not goal.missed(1, None, lost)
    assert goal.loses(100 * lost)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("size<25MB", "say size<=25MB"),
        ("size<=25", "say size<=25MB"),
        ("latency<=5ms", "say size<=25MB"),
        ("loss<=1, loss<=2", "says loss twice"),
        ("latency<=5ms@0x64", "three pieces"),
        ("latency<=5ms@1000000x64", "1,000,000 rows of 64 pieces are more than 65,536"),
    ],
)
def test_what_is_no_goal_is_said(said: str, wrong: str) -> None:
    with pytest.raises(UserError, match=wrong):
        Goal.of(said)


def test_where_nothing_has_to_go_nothing_goes(tuned: FineTuned, tmp_path: Path) -> None:
    said: list[str] = []
    result = shipment(tuned, "loss<=0", said).ship(tmp_path / "out")
    assert (result["plan"], result["method"], result["lost"]) == ("2 layers, weights", None, 0)
    assert result["lost_interval"] == [0, 0]
    assert result["examples"] > 1
    assert result["kept"]
    assert result["goal"] == "loss<=0"
    assert any(line.startswith("plan: 2 layers") for line in said)
    again = load(tmp_path / "out")
    assert again.predict(["a red bird"]) == tuned.predict(["a red bird"])


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("limit", "shape", "form", "taught"),
    [
        ((Shape(2), Form("int8")), Shape(2), "int8", False),
        ((Shape(2), Form("int8", trimmed=True)), Shape(2), "int8", False),
        ((Shape(2, 0.5), Form("int8", trimmed=True)), None, "int8", True),
    ],
)
def test_what_is_shipped_keeps_to_its_size(
    tuned: FineTuned,
    work: Path,
    tmp_path: Path,
    limit: tuple[Shape, Form],
    shape: Shape | None,
    form: str,
    taught: bool,
) -> None:
    measured = Candidates(tuned, Goal(), classes(), work, lambda line: None)
    goal = f"size<={measured.at(*limit).bytes / 1e3:.3f}KB"
    said: list[str] = []
    result = shipment(tuned, goal, said, work).ship(tmp_path / "out")
    assert result["kept"]
    assert result["method"] == ("output-distillation" if taught else None)
    size = shipped_bytes(tmp_path / "out")
    assert size == result["shipped"]["bytes"] <= measured.at(*limit).bytes
    assert result["candidates"][result["plan"]]["bytes"] == pytest.approx(size, rel=0.02)
    assert result == json.loads((tmp_path / "out" / "shipping.json").read_text())
    again = load(tmp_path / "out")
    assert isinstance(again, FineTuned)
    assert len(again.predict(["a red bird"])) == 1
    assert form == ("int8" if "8 bits" in result["plan"] else "weights")
    if shape is not None:
        assert result["plan"].startswith(f"{shape.name}, ")
    assert any(line.startswith("plan: ") for line in said)
    assert taught == bool(result["loss_by_shape"])


def test_what_nothing_keeps_is_said_of_the_least(
    tuned: FineTuned, work: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    with pytest.raises(UserError, match="nothing keeps to the goal: the smallest \\(1 layer, 25%"):
        shipment(tuned, "size<=1KB", said, work).ship(tmp_path / "none")
    assert not any(line.startswith("plan") for line in said)
    assert not (tmp_path / "none").exists()


def test_what_was_exported_is_not_exported_again(
    tuned: FineTuned, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(goal: Goal) -> list[tuple[Shape, Form, int]]:
        measured = Candidates(tuned, goal, classes(), work, lambda line: None)
        own = [measured.at(Shape(1), PLAIN), measured.at(Shape(2), Form("int8"))]
        return [(each.shape, each.form, each.bytes) for each in own]

    first = found(Goal())
    monkeypatch.setattr(Form, "write", lambda *_: pytest.fail("again"))
    assert found(Goal(rows=2, length=8)) == first


def test_what_was_half_written_is_written_again(
    tuned: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size() -> int:
        measured = Candidates(tuned, Goal(), classes(), tmp_path / "work", lambda line: None)
        return measured.at(Shape(1), PLAIN).bytes

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bertwright.model.folder.save_file", stopped)
        size()
    assert size() > 0


@pytest.mark.usefixtures("untimed")
def test_a_form_that_loses_more_than_it_may_is_not_taken(
    tuned: FineTuned, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Candidates(tuned, Goal(), classes(), work, lambda line: None)
    half = measured.at(Shape(2, 0.5), PLAIN).bytes
    assert measured.at(Shape(2), Form("int8")).bytes < half
    scores = iter([0.9, 0.7, 0.9, 0.7])
    monkeypatch.setattr("bertwright.shipping.planning.evaluate", lambda *_: {"score": next(scores)})
    result = shipment(tuned, f"size<={half / 1e3:.3f}KB, loss<=90", [], work).ship(
        tmp_path / "free"
    )
    assert result["plan"] == "2 layers, 8 bits"
    scores = iter([0.9, 0.7, 0.7, 0.7])
    result = shipment(tuned, f"size<={half / 1e3:.3f}KB, loss<=19", [], work).ship(tmp_path / "out")
    assert result["lost_by_form"]["8 bits"] == pytest.approx(20)
    assert result["plan"].endswith("weights")
    assert result["method"] == "output-distillation"


def test_settings_are_looked_at_before_anything_is_measured(
    tuned: FineTuned, tmp_path: Path
) -> None:
    said: list[str] = []
    wrong = replace(shipment(tuned, "size<=1KB", said), settings={"epoch": 1})
    with pytest.raises(UserError, match="no key 'epoch'"):
        wrong.ship(tmp_path / "none")
    for method in ("heads-units-iterative", "layer-drop-needed"):
        whole = replace(shipment(tuned, "size<=1KB", said), method=method)
        with pytest.raises(UserError, match=f"which {method} would choose"):
            whole.ship(tmp_path / "none")
    rounded = replace(shipment(tuned, "size<=1KB", said), method="q8-qat")
    with pytest.raises(UserError, match="rounded behind the training"):
        rounded.ship(tmp_path / "none")
    assert not said


def test_what_is_shipped_in_8_bits_has_nothing_else(tuned: FineTuned, tmp_path: Path) -> None:
    Form("int8").write(tuned, classes(), tmp_path / "graph")
    assert not (tmp_path / "graph" / "model.onnx").exists()
    assert "`model.onnx`" not in (tmp_path / "graph" / "README.md").read_text()
    assert len(load(tmp_path / "graph").predict(["a red bird"])) == 1
    with pytest.raises(UserError, match="8 bits alone"):
        load(tmp_path / "graph", "float32")
    export_onnx(tuned, tmp_path / "both", int8=True)
    (tmp_path / "both" / "model.onnx").unlink()
    both, alone = (load(tmp_path / name).predict(["a red bird"]) for name in ("both", "graph"))
    assert both == alone


def test_a_goal_that_was_missed_is_no_success(
    tuned: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned.save(tmp_path / "tuned")
    rows = [f"{e.first}\t{e.label}\n" for e in classes()]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
    scores = iter([{"score": 0.9}, {"score": 0.7}])
    monkeypatch.setattr("bertwright.shipping.shipping.evaluate", lambda *_: next(scores))
    asked = [
        "compress", str(tmp_path / "tuned"), "--train", str(tmp_path / "train.tsv"),
        "--goal", "loss<=1.5", "-o", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == 1
    assert "loss<=1.5 points is missed: it is 20 points, 18.5 points too much" in ran.stderr
    told = json.loads(ran.stdout)
    assert not told["kept"]
    assert told == json.loads((tmp_path / "out" / "shipping.json").read_text())


def test_a_goal_asks_for_rows_that_can_be_read(
    tuned: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = tuned.net.encoder.longest
    assert longest is not None
    with pytest.raises(UserError, match=f"reads rows of {longest} pieces at most"):
        shipment(tuned, f"latency<=5ms@1x{longest + 1}", []).ship(tmp_path / "long")
    assert not list(tmp_path.iterdir())
    asked: list[int] = []

    def seconds(artefacts: list[Any], given: dict[str, Any], *_: int) -> list[list[float]]:
        asked.append(given["length"])
        return [[1.0]] * len(artefacts)

    monkeypatch.setattr("bertwright.shipping.shipping.seconds_in_turns", seconds)
    goal = Goal(length=longest + 1, points=0)
    replace(shipment(tuned, "loss<=0", []), goal=goal).ship(tmp_path / "whole")
    assert asked == [longest]


@pytest.mark.usefixtures("untimed")
def test_a_model_without_blocks_has_forms_alone(tuned: FineTuned, tmp_path: Path) -> None:
    table = static_table(
        TextModel(Model.build(toy("bert"), tuned.tokenizer.size), tuned.tokenizer), 8
    )
    alone = finetune(table, tuned.task, train=classes(), dev=classes(), **QUICK).model
    alone.save(tmp_path / "table")
    size = shipped_bytes(tmp_path / "table")
    result = shipment(alone, f"size<={(size - 1) / 1e3:.3f}KB", []).ship(tmp_path / "out")
    assert result["method"] is None
    assert result["shipped"]["bytes"] < size
    with pytest.raises(UserError, match="nothing keeps to the goal"):
        shipment(alone, "size<=0.01KB", []).ship(tmp_path / "none")
    assert sharpness(alone, classes()) == []
