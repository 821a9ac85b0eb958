"""The largest model that keeps to a goal is what is shipped."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.quantisation.sharpness import sharpness
from bertwright.compression.static_table import static_table
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.shipping.candidates import candidates, shipped_bytes
from bertwright.shipping.goal import Goal
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


def shipment(model: FineTuned, goal: str, said: list[str]) -> Shipment:
    data = TaskData(model.task, train=classes(), dev=classes())
    return Shipment(model, Goal.of(goal), data, "output-distillation", said.append, QUICK)


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
    assert goal.allows(0.99 * goal.points / 100)
    assert not goal.allows(1.01 * goal.points / 100)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("size<25MB", "say size<=25MB"),
        ("size<=25", "say size<=25MB"),
        ("latency<=5ms", "say size<=25MB"),
        ("loss<=1, loss<=2", "says points twice"),
        ("latency<=5ms@0x64", "three pieces"),
    ],
)
def test_what_is_no_goal_is_said(said: str, wrong: str) -> None:
    with pytest.raises(UserError, match=wrong):
        Goal.of(said)


def test_where_nothing_has_to_go_nothing_goes(tuned: FineTuned, tmp_path: Path) -> None:
    said: list[str] = []
    result = shipment(tuned, "loss<=0", said).ship(tmp_path / "out")
    assert (result["plan"], result["method"], result["lost"]) == ("2 layers, weights", None, 0)
    assert result["kept"]
    assert any(line.startswith("plan: 2 layers") for line in said)
    again = load(tmp_path / "out")
    assert again.predict(["a red bird"]) == tuned.predict(["a red bird"])


def test_what_is_shipped_keeps_to_its_size(
    tuned: FineTuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = list(candidates(tuned, Goal(), tmp_path, lambda line: None))
    assert [(own.layers, own.form) for own in known] == [
        (2, "weights"),
        (2, "int8"),
        (1, "weights"),
        (1, "int8"),
    ]
    monkeypatch.setattr("bertwright.shipping.shipping.candidates", lambda *_: iter(known))
    small = known[2]
    goal = f"size<={small.bytes / 1e3:.3f}KB"
    result = shipment(tuned, goal, []).ship(tmp_path / "out")
    first = next(own for own in known if own.bytes <= small.bytes)
    assert result["plan"] == first.name
    assert result["kept"]
    assert shipped_bytes(tmp_path / "out") == result["shipped"]["bytes"] <= small.bytes
    assert result == json.loads((tmp_path / "out" / "shipping.json").read_text())
    assert isinstance(load(tmp_path / "out"), FineTuned)
    with pytest.raises(UserError, match="nothing keeps to the goal: the smallest"):
        shipment(tuned, "size<=1KB", []).ship(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_goal_needs_blocks_and_rows_that_can_be_read(tuned: FineTuned, tmp_path: Path) -> None:
    longest = tuned.net.encoder.longest
    assert longest is not None
    with pytest.raises(UserError, match=f"reads rows of {longest} pieces at most"):
        shipment(tuned, f"latency<=5ms@1x{longest + 1}", []).ship(tmp_path / "long")
    table = static_table(
        TextModel(Model.build(toy("bert"), tuned.tokenizer.size), tuned.tokenizer), 8
    )
    alone = finetune(table, tuned.task, train=classes(), dev=classes(), **QUICK).model
    with pytest.raises(UserError, match="this has none"):
        shipment(alone, "size<=1KB", []).ship(tmp_path / "none")
    assert sharpness(alone, classes()) == []
    assert not list(tmp_path.iterdir())
