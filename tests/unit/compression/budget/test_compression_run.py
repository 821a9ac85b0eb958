"""Compression to a goal."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.compression.budget.candidates import (
    WEIGHTS_FORMAT,
    ArtefactFormat,
    BudgetCandidate,
    CandidatePool,
    artefact_bytes,
)
from bertwright.compression.budget.goal import Goal
from bertwright.compression.budget.planner import BudgetPlan
from bertwright.compression.budget.run import BudgetRun
from bertwright.compression.budget.shapes import ModelShape, prune_to_shape
from bertwright.compression.quantization.sharpness import block_sharpness
from bertwright.compression.vocabulary.static_embeddings import static_embedding_model
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.manifest import GRAPH_FILE
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.timing.artefacts import Artefact
from small_tasks import ENGLISH, classes
from toy_recipes import toy

QUICK = {"epochs": 1, "compile": False}


@pytest.fixture(scope="module")
def tuned() -> FineTunedModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer)
    colours = table_task("colours", Columns())
    return finetune(model, colours, train=classes(), dev=classes(), **QUICK).model


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of measured candidates shared by the tests."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the timing of the final models: 3 milliseconds, and 2 after the compression."""

    def seconds(artefacts: Sequence[Artefact], *_: Any) -> list[list[float]]:
        assert len(artefacts) == 2
        return [[0.003, 0.1, 0.001], [0.002]]

    monkeypatch.setattr("bertwright.compression.budget.run.interleaved_seconds", seconds)


def budget_run(
    model: FineTunedModel, goal: str, log: list[str], work: Path | None = None
) -> BudgetRun:
    data = TaskData(model.task, train=classes(), dev=classes())
    method = "output-distillation"
    return BudgetRun(model, Goal.parse(goal), data, method, log.append, QUICK, work)


def candidate_pool(model: FineTunedModel, work: Path, goal: Goal | None = None) -> CandidatePool:
    return CandidatePool(model, goal or Goal(), classes(), work, lambda line: None)


@given(
    st.floats(0.1, 900),
    st.floats(0.1, 90),
    st.integers(1, 64),
    st.integers(3, 512),
    st.floats(0.1, 9),
)
def test_goal_is_parsed(
    size: float, latency: float, batch_size: int, length: int, loss: float
) -> None:
    goal = Goal.parse(
        f"size<={size:.3f}MB, latency<={latency:.3f}ms@{batch_size}x{length}, loss<={loss:.2f}"
    )
    assert goal.max_bytes == pytest.approx(1e6 * size, abs=1e3)
    assert goal.max_milliseconds == pytest.approx(latency, abs=1e-3)
    assert (goal.batch_size, goal.sequence_length) == (batch_size, length)
    assert goal.is_met(goal.max_bytes, goal.max_milliseconds)
    assert not goal.is_met(goal.max_bytes * 1.01, goal.max_milliseconds)
    assert not goal.is_met(goal.max_bytes, goal.max_milliseconds * 1.01)
    assert not goal.unmet(goal.max_bytes, goal.max_milliseconds, 0.99 * goal.max_lost_points / 100)
    (unmet,) = goal.unmet(goal.max_bytes, goal.max_milliseconds, (goal.max_lost_points + 1) / 100)
    assert unmet.startswith("loss<=")
    assert unmet.endswith("1 points too much")
    assert len(goal.unmet(2 * goal.max_bytes, 2 * goal.max_milliseconds, 1)) == 3


def test_units_defaults_and_the_largest_and_smallest_batch() -> None:
    sizes = {"2KB": 2e3, "2.5MB": 2.5e6, "1GB": 1e9}
    assert {size: Goal.parse(f"size<={size}").max_bytes for size in sizes} == sizes
    goal = Goal.parse(text := "loss<=1.5")
    assert goal == Goal(None, None, 1, 64, 1.5, text)
    assert goal.is_met(1e12, None)
    assert Goal(max_milliseconds=1).is_met(1e12, None)
    for shape in ("1x3", "512x128", "1x65536"):
        goal = Goal.parse(f"latency<=5ms@{shape}")
        assert f"{goal.batch_size}x{goal.sequence_length}" == shape
    for shape in ("1x2", "0x3", "1x65537"):
        with pytest.raises(UserError):
            Goal.parse(f"latency<=5ms@{shape}")
    for impossible in ("size<=0MB", "loss<=1,latency<=0.0ms@1x64"):
        with pytest.raises(UserError, match="no model meets 0"):
            Goal.parse(impossible)
    assert Goal(2e6, 5, max_lost_points=1).unmet(2_500_000, 5.25, 0.03) == [
        "size<=2 MB is not met: it is 2.5 MB, 0.5 MB too much",
        "latency<=5 ms is not met: it is 5.25 ms, 0.25 ms too much",
        "loss<=1 points is not met: it is 3 points, 2 points too much",
    ]


@given(st.integers(1, 2000), st.data())
def test_rounding_does_not_break_the_limit_of_lost_points(
    num_examples: int, data: st.DataObject
) -> None:
    before = data.draw(st.integers(0, num_examples))
    after = data.draw(st.integers(0, before))
    lost = before / num_examples - after / num_examples
    goal = Goal(max_lost_points=100 * (before - after) / num_examples)
    assert not goal.unmet(1, None, lost)
    assert goal.allows_loss(100 * lost)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size<25MB", "write size<=25MB"),
        ("size<=25", "write size<=25MB"),
        ("latency<=5ms", "write size<=25MB"),
        ("loss<=1, loss<=2", "states loss twice"),
        ("latency<=5ms@0x64", "at least 3 tokens"),
        (
            "latency<=5ms@1000000x64",
            "1,000,000 sequences of 64 tokens exceed the maximum of 65,536",
        ),
    ],
)
def test_invalid_goals_raise(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Goal.parse(text)


def test_model_that_meets_the_goal_is_unchanged(tuned: FineTunedModel, tmp_path: Path) -> None:
    log: list[str] = []
    result = budget_run(tuned, "loss<=0", log).run(tmp_path / "out")
    assert (result["plan"], result["method"], result["lost_points"]) == (
        "2 layers, weights", None, 0,
    )  # fmt: skip
    assert result["lost_points_interval"] == [0, 0]
    assert result["examples"] > 1
    assert result["is_met"]
    assert result["goal"] == "loss<=0"
    assert any(line.startswith("plan: 2 layers") for line in log)
    assert load(tmp_path / "out").predict(["a red bird"]) == tuned.predict(["a red bird"])


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("limit", "shape", "trains"),
    [
        pytest.param(
            (ModelShape(2), ArtefactFormat("int8")), ModelShape(2), False, marks=pytest.mark.full
        ),
        pytest.param(
            (ModelShape(2), ArtefactFormat("int8", prunes_vocabulary=True)),
            ModelShape(2),
            False,
            marks=pytest.mark.full,
        ),
        pytest.param(
            (ModelShape(2, 0.5), ArtefactFormat("int8", prunes_vocabulary=True)),
            None,
            True,
            marks=pytest.mark.full,
        ),
    ],
)
def test_compressed_model_meets_the_size_limit(
    tuned: FineTunedModel,
    work: Path,
    tmp_path: Path,
    limit: tuple[ModelShape, ArtefactFormat],
    shape: ModelShape | None,
    trains: bool,
) -> None:
    max_bytes = candidate_pool(tuned, work).measure(*limit).num_bytes
    log: list[str] = []
    result = budget_run(tuned, f"size<={max_bytes / 1e3:.3f}KB", log, work).run(tmp_path / "out")
    assert result["is_met"]
    assert result["method"] == ("output-distillation" if trains else None)
    assert [result[name]["milliseconds"] for name in ("base", "compressed")] == [3.0, 2.0]
    size = artefact_bytes(tmp_path / "out")
    assert size == result["compressed"]["bytes"] <= max_bytes
    assert result["candidates"][result["plan"]]["bytes"] == pytest.approx(size, rel=0.02)
    assert result == json.loads((tmp_path / "out" / "budget.json").read_text())
    loaded = load(tmp_path / "out")
    assert isinstance(loaded, FineTunedModel)
    assert len(loaded.predict(["a red bird"])) == 1
    assert "8 bits" in result["plan"]
    if shape is not None:
        assert result["plan"].startswith(f"{shape.name}, ")
    assert any(line.startswith("plan: ") for line in log)
    assert trains == bool(result["loss_by_shape"])


@pytest.mark.full
def test_infeasible_goal_names_the_smallest_candidate(
    tuned: FineTunedModel, work: Path, tmp_path: Path
) -> None:
    log: list[str] = []
    message = r"no candidate meets the goal: the smallest \(1 layer, 25%"
    with pytest.raises(UserError, match=message):
        budget_run(tuned, "size<=1KB", log, work).run(tmp_path / "none")
    assert not any(line.startswith("plan") for line in log)
    assert not (tmp_path / "none").exists()


def test_exported_candidates_are_reused(
    tuned: FineTunedModel, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sizes(goal: Goal) -> list[int]:
        pool = candidate_pool(tuned, work, goal)
        return [
            pool.measure(ModelShape(1), WEIGHTS_FORMAT).num_bytes,
            pool.measure(ModelShape(2), ArtefactFormat("int8")).num_bytes,
        ]

    first = sizes(Goal())
    monkeypatch.setattr(ArtefactFormat, "write", lambda *_: pytest.fail("exported again"))
    assert sizes(Goal(batch_size=2, sequence_length=8)) == first


def test_incomplete_candidates_are_written_again(
    tuned: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size() -> int:
        pool = candidate_pool(tuned, tmp_path / "work")
        return pool.measure(ModelShape(1), WEIGHTS_FORMAT).num_bytes

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bertwright.models.saving.save_file", interrupt)
        size()
    assert size() > 0


@pytest.mark.usefixtures("untimed")
def test_formats_that_lose_too_much_are_excluded(
    tuned: FineTunedModel, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = candidate_pool(tuned, work)
    half = pool.measure(ModelShape(2, 0.5), WEIGHTS_FORMAT).num_bytes
    assert pool.measure(ModelShape(2), ArtefactFormat("int8")).num_bytes < half
    scores = iter([0.9, 0.7, 0.9, 0.7])
    monkeypatch.setattr(
        "bertwright.compression.budget.planner.evaluate", lambda *_: {"score": next(scores)}
    )
    size_limit = f"size<={half / 1e3:.3f}KB"
    result = budget_run(tuned, f"{size_limit}, loss<=90", [], work).run(tmp_path / "free")
    assert result["plan"] == "2 layers, 8 bits"
    scores = iter([0.9, 0.7, 0.7, 0.7])
    result = budget_run(tuned, f"{size_limit}, loss<=19", [], work).run(tmp_path / "out")
    assert result["lost_points_by_format"]["8 bits"] == pytest.approx(20)
    assert result["plan"].endswith("weights")
    assert result["method"] == "output-distillation"


def test_settings_are_checked_before_measuring(tuned: FineTunedModel, tmp_path: Path) -> None:
    log: list[str] = []
    run = budget_run(tuned, "size<=1KB", log)
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"settings": {"epoch": 1}}, "no key 'epoch'"),
        ({"settings": {"seeds": 2}}, "leave seeds= out"),
        ({"method": "q8-qat"}, "quantized after training"),
        ({"method": "bilstm-soft"}, "and bilstm-soft starts with another"),
        ({"method": "albert-share"}, "and albert-share starts with another"),
    ]
    for method in ("heads-units-iterative", "layer-drop-needed"):
        invalid.append(({"method": method}, f"and {method} selects"))
    for changes, message in invalid:
        with pytest.raises(UserError, match=message):
            replace(run, **changes).run(tmp_path / "none")
    assert not log


def test_the_time_of_training_is_estimated(
    tuned: FineTunedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all epochs of the student, three passes each, and of the teacher once in every stage."""
    run, examples, log = budget_run(tuned, "loss<=1", []), classes(), list[str]()
    run = replace(run, method="tiny-task", settings={"epochs": 2}, log=log.append)
    small = prune_to_shape(tuned, ModelShape(1), examples)
    clock = SimpleNamespace(now=0.0, passes=0)

    def predict(model: FineTunedModel, inputs: Sequence[Example]) -> None:
        clock.now += len(inputs) * (3.0 if model is tuned else 0.5)
        clock.passes += 1

    monkeypatch.setattr(FineTunedModel, "predict", predict)
    monkeypatch.setattr("bertwright.compression.budget.run.time.perf_counter", lambda: clock.now)
    assert run._estimated_seconds(small, examples) == 32 * (0.5 * 3 * (2 + 2) + 3.0 * 2)
    assert clock.passes == 4  # each once before it is timed
    run._log_plan(BudgetPlan(candidate_of(ModelShape(1)), small), examples)
    assert log == [
        "plan: 1 layer, weights",
        "tiny-task trains the pruned model: about 6.4 minutes",
    ]


def candidate_of(shape: ModelShape) -> BudgetCandidate:
    return BudgetCandidate(shape, WEIGHTS_FORMAT, 1, None)


@pytest.mark.full
def test_int8_export_needs_no_float32_graph(tuned: FineTunedModel, tmp_path: Path) -> None:
    ArtefactFormat("int8").write(tuned, classes(), tmp_path / "int8")
    assert not (tmp_path / "int8" / GRAPH_FILE).exists()
    assert f"`{GRAPH_FILE}`" not in (tmp_path / "int8" / "README.md").read_text()
    assert len(load(tmp_path / "int8").predict(["a red bird"])) == 1
    with pytest.raises(UserError, match="has an int8 graph only"):
        load(tmp_path / "int8", "float32")
    export_onnx(tuned, tmp_path / "both", int8=True)
    (tmp_path / "both" / GRAPH_FILE).unlink()
    both, only_int8 = (load(tmp_path / name).predict(["a red bird"]) for name in ("both", "int8"))
    assert both == only_int8


def test_missed_goal_exits_with_1(
    tuned: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned.save(tmp_path / "tuned")
    lines = [f"{e.text}\t{e.label}\n" for e in classes()]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(lines))
    scores = iter([{"score": 0.9}, {"score": 0.7}])
    monkeypatch.setattr("bertwright.compression.budget.run.evaluate", lambda *_: next(scores))
    monkeypatch.setattr(
        "bertwright.compression.budget.run.paired_difference",
        lambda *_: SimpleNamespace(low=-0.125, high=0.5),
    )
    command = [
        "compress", "fit", str(tmp_path / "tuned"), "--train", str(tmp_path / "train.tsv"),
        "--goal", "loss<=1.5", "-o", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 1
    message = "loss<=1.5 points is not met: it is 20 points, 18.5 points too much"
    assert message in outcome.stderr
    result = json.loads(outcome.stdout)
    assert not result["is_met"]
    assert result["lost_points"] == pytest.approx(20)
    assert result["lost_points_interval"] == [-12.5, 50]
    assert result == json.loads((tmp_path / "out" / "budget.json").read_text())


def test_latency_is_measured_within_the_maximum_length(
    tuned: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    max_length = tuned.task_model.encoder.max_length
    assert max_length is not None
    budget_run(tuned, f"latency<=5ms@1x{max_length}", [])._require_possible()
    with pytest.raises(UserError, match=f"reads sequences of at most {max_length} tokens"):
        budget_run(tuned, f"latency<=5ms@1x{max_length + 1}", []).run(tmp_path / "long")
    assert not list(tmp_path.iterdir())
    lengths: list[int] = []

    def seconds(artefacts: list[Any], shape: dict[str, Any], *_: int) -> list[list[float]]:
        lengths.append(shape["max_length"])
        return [[1.0]] * len(artefacts)

    monkeypatch.setattr("bertwright.compression.budget.run.interleaved_seconds", seconds)
    goal = Goal(sequence_length=max_length + 1, max_lost_points=0)
    replace(budget_run(tuned, "loss<=0", []), goal=goal).run(tmp_path / "out")
    assert lengths == [max_length]


@pytest.mark.full
@pytest.mark.usefixtures("untimed")
def test_model_without_blocks_changes_only_its_format(
    tuned: FineTunedModel, tmp_path: Path
) -> None:
    static = static_embedding_model(
        TextModel(Model.build(toy("bert"), tuned.tokenizer.vocab_size), tuned.tokenizer), 8
    )
    model = finetune(static, tuned.task, train=classes(), dev=classes(), **QUICK).model
    model.save(tmp_path / "static")
    size = artefact_bytes(tmp_path / "static")
    result = budget_run(model, f"size<={(size - 1) / 1e3:.3f}KB", []).run(tmp_path / "out")
    assert result["method"] is None
    assert result["compressed"]["bytes"] < size
    with pytest.raises(UserError, match="no candidate meets the goal"):
        budget_run(model, "size<=0.01KB", []).run(tmp_path / "none")
    assert block_sharpness(model, classes()) == []
