"""What a fine-tuned model predicts, its graph predicts."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

import bertwright as bw
from bertwright.cli.application import app
from bertwright.compression.compressing import compress
from bertwright.compression.quantisation import unrounded
from bertwright.compression.quantisation.rounding import WithinRange
from bertwright.encoder.initialisation import initialise
from bertwright.encoder.kernels.eight_bits import saturates
from bertwright.errors import UserError
from bertwright.interop.onnx.about import GRAPH, INT8
from bertwright.interop.onnx.inputs import PIECES, STATES
from bertwright.interop.onnx.quantising import quantise
from bertwright.interop.onnx.ranges import RangeObserver, Ranges
from bertwright.interop.onnx.reading import OnnxFineTuned
from bertwright.interop.onnx.session import Session
from bertwright.interop.onnx.writing import export_onnx
from bertwright.tasks.adaptation import Adaptation
from bertwright.tasks.answers import ClosenessAnswer, OptionAnswer, SpanAnswer
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned, num_outputs
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel
from bertwright.tasks.wide_questions import with_wide_questions
from bertwright.text.tokenizers import WordPieceChoice
from recipes_at_toy_size import shaken, toy
from small_tasks import ENGLISH, classes, options, questions, similar, tagged

TASKS: dict[str, tuple[Task, Any, dict[str, Any]]] = {
    "class": (
        table_task("kinds", Columns()),
        classes(),
        {"kind": "plain", "read": "last-max-mean", "layers": "last-2", "mix": "learned"},
    ),
    "tags": (tagging_task("kinds"), tagged(), {"kind": "plain", "read": "places"}),
    "closeness": (
        table_task("near", Columns(), ClosenessAnswer(highest=5.0)),
        similar(),
        {"kind": "plain", "read": "mean"},
    ),
    "span": (Task("asked", SpanAnswer()), questions(), {"kind": "plain", "read": "places"}),
    "option": (Task("chosen", OptionAnswer()), options(), {"kind": "pooler"}),
}


ROUNDED = {"kind": "quantised", "activations": {}}


def tuned(
    task: Task, examples: Any, head: dict[str, Any], adaptation: Any = "adapters"
) -> FineTuned:
    """As if it came from fine-tuning: its parameters are drawn by chance."""
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    # Of one block, as what is asked here stands behind the blocks; only a mix reads two.
    system = "longformer" if isinstance(task.answer, SpanAnswer) else "bert"
    recipe = toy(system, f"encoder.depth.layers={2 if 'mix' in head else 1}")
    recipe = with_wide_questions(recipe, [task.answer])
    task = task.gathered(examples)
    plan = HeadPlan(HeadChoice.choose(head), num_outputs(task), task.answer.name)
    net = TaskModel(recipe, tokenizer.size, plan, Adaptation.choose(adaptation))
    for module in net.modules():
        if isinstance(module, WithinRange):
            module.low.fill_(-2.0)
            module.high.fill_(2.0)
            module.on.fill_(True)
    initialise(net, recipe.encoder.initialisation, seed=5)
    return FineTuned(shaken(net, 0.3), tokenizer, task, precision="float32", temperature=1.5)


@pytest.fixture(scope="module")
def of_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model of classes, with 8 bits."""
    folder = tmp_path_factory.mktemp("classes") / "exported"
    export_onnx(tuned(*TASKS["class"]), folder, int8=True)
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_predictions_are_those_of_the_model(name: str, of_classes: Path, tmp_path: Path) -> None:
    task, examples, head = TASKS[name]
    model = tuned(task, examples, head, ROUNDED if name == "option" else "adapters")
    folder = of_classes if name == "class" else tmp_path / "exported"
    if folder != of_classes:
        export_onnx(model, folder)
    # A graph in float32 rounds nothing between the weights.
    model = unrounded(model)
    opened = bw.load(folder, "float32", threads=1)
    assert isinstance(opened, OnnxFineTuned)
    assert opened.task == model.task
    for ours, theirs in zip(model.predict(examples), opened.predict(examples), strict=True):
        assert ours.answer == pytest.approx(theirs.answer, abs=1e-4)
    rows = model.answering.rows(model.maker, examples)
    for ours, theirs in zip(model.outputs(rows), opened.outputs(rows), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4)
    texts = ["The red bird", "The old house is new"]
    np.testing.assert_allclose(opened.embed(texts), model.embed(texts), atol=1e-4)


def test_the_command_line_predicts_from_a_graph(of_classes: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("The red bird\nThe old house\n")
    said = CliRunner().invoke(app, ["predict", str(of_classes), str(tmp_path / "texts.txt")])
    assert said.exit_code == 0, said.output
    assert len(said.stdout.splitlines()) == 2


def test_a_graph_is_no_teacher(of_classes: Path, tmp_path: Path) -> None:
    opened = bw.load(of_classes)
    assert isinstance(opened, OnnxFineTuned)
    data = TaskData(opened.task, train=classes(), dev=classes())
    with pytest.raises(UserError, match="name the folder that it was exported from"):
        compress(opened, "output-distillation", data, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("observer", get_args(RangeObserver))
def test_within_ranges_found_ahead_a_row_is_rounded_by_itself(
    of_classes: Path, tmp_path: Path, observer: RangeObserver
) -> None:
    model = tuned(*TASKS["class"])
    ranges = Ranges.of(model, classes(), observer)
    quantise(of_classes / GRAPH, tmp_path / INT8, saturates(), ranges)
    within = Session(tmp_path / INT8)
    exact, apart = Session(of_classes / GRAPH), Session(of_classes / INT8)
    several = max(ranges.batches, key=lambda batch: len(batch[PIECES]))
    alone = {name: values[:1] for name, values in several.items()}
    right, found = exact.run(STATES, several), within.run(STATES, several)
    assert 1e-6 < np.abs(found - right).max() < 0.2 * np.abs(right).max()
    np.testing.assert_allclose(within.run(STATES, alone), found[:1], atol=1e-6)
    assert np.abs(apart.run(STATES, alone) - apart.run(STATES, several)[:1]).max() > 1e-6


def test_ranges_hold_what_all_rows_show(of_classes: Path, tmp_path: Path) -> None:
    model, graph = tuned(*TASKS["class"]), of_classes / GRAPH

    def found(of: slice, observer: RangeObserver = "extremes") -> dict[str, tuple[float, float]]:
        known = Ranges.of(model, classes()[of], observer).overrides(graph, tmp_path)
        return {name: (own["rmin"], own["rmax"]) for name, (own,) in known.items()}

    first, second, both = found(slice(16)), found(slice(16, None)), found(slice(None))
    for name, (low, high) in both.items():
        assert low == min(first[name][0], second[name][0])
        assert high == max(first[name][1], second[name][1])
        assert low < high
    for name, (low, high) in found(slice(None), "entropy").items():
        assert both[name][0] - 1e-6 <= low < high <= both[name][1] + 1e-6


@pytest.mark.parametrize(
    ("name", "head", "message"),
    [
        ("tags", {"kind": "bilstm", "width": 8}, r"bilstm reads the words of a row on end"),
        ("class", {"kind": "plain", "read": "apart"}, r"apart reads two texts that do not see"),
    ],
)
def test_a_head_that_no_graph_computes_says_why(
    name: str, head: dict[str, Any], message: str, tmp_path: Path
) -> None:
    task, examples, _ = TASKS[name]
    model = tuned(task, examples, head)
    with pytest.raises(UserError, match=message):
        export_onnx(model, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []
