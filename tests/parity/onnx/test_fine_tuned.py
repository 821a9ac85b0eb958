"""A graph predicts what its fine-tuned model predicts."""

import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

import bertwright as bw
from bertwright.cli.app import app
from bertwright.compression.compress import compress
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.interop.graph.inputs import (
    ATTENTION_MASK,
    END_LOGITS,
    INPUT_IDS,
    LAST_HIDDEN_STATE,
    LOGITS,
    PROBABILITIES,
    SENTENCE_EMBEDDING,
    START_LOGITS,
    TOKEN_TYPE_IDS,
)
from bertwright.interop.onnx.calibration import ActivationCalibration, RangeObserver
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.int8_loss import Int8Samples, measure_int8_loss
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE, OnnxManifest
from bertwright.interop.onnx.model import OnnxFineTunedModel
from bertwright.interop.onnx.quantization import quantise_graph
from bertwright.interop.onnx.session import OnnxSession
from bertwright.models.saving import TASK_FILE
from bertwright.modules.inference.int8_linear import int8_sums_saturate
from bertwright.modules.initialisation import initialise
from bertwright.tasks.adapters import AdaptationConfig
from bertwright.tasks.adapters.quantization.fake_quantize import StaticFakeQuantize
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.conformal.calibration import labelled_scores
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.heads.task_visibility import with_global_question_attention
from bertwright.tasks.outputs import MultipleChoiceOutput, SimilarityOutput, SpanOutput
from bertwright.tasks.outputs.probabilities import softmax
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel
from full_suite import full_except
from small_tasks import ENGLISH, TEXTS, classes, options, pairs, questions, similar, tagged
from toy_recipes import shaken, toy

TASKS: dict[str, tuple[Task, Any, dict[str, Any]]] = {
    "class": (
        table_task("kinds", Columns()),
        classes(),
        {"kind": "mlp", "pooling": "last-max-mean", "layers": "last-2", "mix": "learned"},
    ),
    "tags": (tagging_task("kinds"), tagged(), {"kind": "plain", "pooling": "positions"}),
    "similarity": (
        table_task("near", Columns(), SimilarityOutput(max_label=5.0)),
        similar(),
        {"kind": "plain", "pooling": "mean"},
    ),
    "span": (
        Task("questions", SpanOutput()),
        questions(),
        {"kind": "plain", "pooling": "positions"},
    ),
    "pair": (table_task("same", Columns()), pairs(), {"kind": "san"}),
    "option": (Task("choices", MultipleChoiceOutput()), options(), {"kind": "pooler"}),
}


OUTPUTS = {
    "class": (LOGITS, PROBABILITIES),
    "tags": (LOGITS, PROBABILITIES),
    "similarity": (SENTENCE_EMBEDDING,),
    "span": (LOGITS, START_LOGITS, END_LOGITS),
    "pair": (LOGITS, PROBABILITIES),
    "option": (LOGITS,),
}
"""Outputs of a graph besides the hidden states."""


FAKE_QUANTIZED = {"kind": "quantised", "activations": {}}

ADAPTATIONS: dict[str, Any] = {"option": FAKE_QUANTIZED, "tags": "knowledge-adapters"}


def fine_tuned_model(
    task: Task, examples: Any, head: dict[str, Any], adaptation: Any = "adapters"
) -> FineTunedModel:
    """A fine-tuned model with random parameters."""
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    # One block suffices for heads, except for a mix of layers.
    system = "longformer" if isinstance(task.output_type, SpanOutput) else "bert"
    recipe = toy(system, f"encoder.depth.layers={2 if 'mix' in head else 1}")
    recipe = with_global_question_attention(recipe, [task.output_type])
    task = task.with_labels_from(examples)
    head_spec = HeadSpec(HeadConfig.parse(head), num_outputs(task), task.output_type.kind_name())
    task_model = TaskModel(
        recipe, tokenizer.vocab_size, head_spec, AdaptationConfig.parse(adaptation)
    )
    for module in task_model.modules():
        if isinstance(module, StaticFakeQuantize):
            module.low.fill_(-2.0)
            module.high.fill_(2.0)
            module.is_enabled.fill_(True)
    initialise(task_model, recipe.encoder.initialisation, seed=5)
    return FineTunedModel(
        shaken(task_model, 0.3), tokenizer, task, precision="float32", temperature=1.5
    )


@pytest.fixture(scope="module")
def class_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported classification model, with an int8 graph."""
    folder = tmp_path_factory.mktemp("classes") / "exported"
    export_onnx(fine_tuned_model(*TASKS["class"]), folder, int8=True)
    return folder


@pytest.mark.parametrize(
    "name",
    full_except(TASKS, ["class"]),
)
def test_predictions_equal_the_models(name: str, class_folder: Path, tmp_path: Path) -> None:
    task, examples, head = TASKS[name]
    model = fine_tuned_model(task, examples, head, ADAPTATIONS.get(name, "adapters"))
    folder = class_folder if name == "class" else tmp_path / "exported"
    if folder != class_folder:
        export_onnx(model, folder)
    # A float32 graph has no fake quantization.
    model = remove_fake_quantizers(model)
    opened = bw.load(folder, "float32", threads=1)
    assert isinstance(opened, OnnxFineTunedModel)
    assert opened.task == model.task
    for expected, actual in zip(model.predict(examples), opened.predict(examples), strict=True):
        assert expected.value == pytest.approx(actual.value, abs=1e-4)
    sequences = model.output_decoder.encode(model.example_encoder, examples)
    for expected, actual in zip(
        model.head_outputs(sequences), opened.head_outputs(sequences), strict=True
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-4)
    texts = ["The red bird", "The old house is new"]
    np.testing.assert_allclose(opened.embed(texts), model.embed(texts), atol=1e-4)
    require_outputs_follow_from_the_head(name, model, folder)


def require_outputs_follow_from_the_head(name: str, model: FineTunedModel, folder: Path) -> None:
    """The graph ends in what the decoder of the task computes from the outputs of the head."""
    examples = TASKS[name][1][:1]
    (sequence, *_) = model.output_decoder.encode(model.example_encoder, examples)
    manifest, length = OnnxManifest.read(folder), len(sequence.token_ids)
    arrays = {INPUT_IDS: sequence.token_ids, ATTENTION_MASK: [1] * length}
    if TOKEN_TYPE_IDS in manifest.input_names:
        arrays[TOKEN_TYPE_IDS] = sequence.segment_ids or [0] * length
    inputs = {key: np.array([values]) for key, values in arrays.items()}
    session = OnnxSession(folder / GRAPH_FILE)
    head = model.head_outputs([sequence])[0]
    logits = head / 1.5
    expected = {
        LOGITS: logits,
        PROBABILITIES: softmax(head, 1.5),
        SENTENCE_EMBEDDING: head,
        START_LOGITS: logits[:, 0],
        END_LOGITS: logits[:, -1],
    }
    assert manifest.output_names == (LAST_HIDDEN_STATE, *OUTPUTS[name])
    for key in OUTPUTS[name]:
        output = session.run(key, inputs)
        # A sequence has one output, or one for each position of a word.
        values = output[0, list(sequence.positions)] if sequence.positions else output
        np.testing.assert_allclose(values, expected[key], atol=1e-5)


def test_scores_in_int8_are_reported(class_folder: Path) -> None:
    exact, rounded = (bw.load(class_folder, kind) for kind in ("float32", "int8"))
    examples = classes()
    loss = measure_int8_loss(exact, rounded, Int8Samples(["The red bird"], examples))
    pairs = [
        [prediction.value for prediction in opened.predict(examples)] for opened in (exact, rounded)
    ]
    assert loss.agreement == np.mean([a == b for a, b in zip(*pairs, strict=True)])
    accuracies = tuple(
        np.mean([value == e.label for value, e in zip(values, examples, strict=True)])
        for values in pairs
    )
    assert loss.scores["accuracy"] == pytest.approx(accuracies)
    assert loss.num_examples == len(examples)
    assert "1 given texts" in loss.description
    assert f"accuracy {accuracies[1]:.4f} instead of {accuracies[0]:.4f}" in loss.description


def test_thresholds_hold_for_the_graph_that_they_were_computed_with(
    class_folder: Path, tmp_path: Path
) -> None:
    examples = classes()
    exact = bw.load(class_folder, "float32")
    assert isinstance(exact, FineTunedModel)
    exact.conformal = labelled_scores(exact, examples).calibrate()
    folder = tmp_path / "folder"
    shutil.copytree(class_folder, folder)
    (folder / TASK_FILE).write_text(exact.task_metadata_json())
    assert bw.load(folder, "float32").predict(TEXTS, coverage=0.5)[0].sets is not None
    with pytest.raises(UserError, match="calibrated in float and computes in int8"):
        bw.load(folder, "int8").predict(TEXTS, coverage=0.5)
    (tmp_path / "data.tsv").write_text(
        "".join(f"{e.text}\t{e.label}\n" for e in [Example("text", label="label"), *examples])
    )
    words = ["calibrate", str(folder), "--data", str(tmp_path / "data.tsv")]
    assert CliRunner().invoke(app, words).exit_code == 0
    rounded = bw.load(folder, "int8")
    expected = labelled_scores(rounded, examples).calibrate()
    assert rounded.conformal == expected
    assert rounded.predict(TEXTS, coverage=0.5)[0].sets is not None
    with pytest.raises(UserError, match="calibrated in int8 and computes in float"):
        bw.load(folder, "float32").predict(TEXTS, coverage=0.5)


def test_the_command_line_predicts_from_a_graph(class_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("The red bird\nThe old house\n")
    result = CliRunner().invoke(app, ["predict", str(class_folder), str(tmp_path / "texts.txt")])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2


def test_a_graph_cannot_be_a_teacher(class_folder: Path, tmp_path: Path) -> None:
    opened = bw.load(class_folder)
    assert isinstance(opened, OnnxFineTunedModel)
    data = TaskData(opened.task, train=classes(), dev=classes())
    with pytest.raises(UserError, match="the folder that it was exported from"):
        compress(opened, "output-distillation", data, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("observer", get_args(RangeObserver))
def test_with_static_ranges_batching_does_not_change_rounding(
    class_folder: Path, tmp_path: Path, observer: RangeObserver
) -> None:
    model = fine_tuned_model(*TASKS["class"])
    calibration = ActivationCalibration.from_examples(model, classes(), observer)
    quantised = tmp_path / "static.onnx"
    quantise_graph(class_folder / GRAPH_FILE, quantised, int8_sums_saturate(), calibration)
    static = OnnxSession(quantised)
    exact, dynamic = (
        OnnxSession(class_folder / GRAPH_FILE),
        OnnxSession(class_folder / INT8_GRAPH_FILE),
    )
    batch = max(calibration.batches, key=lambda inputs: len(inputs[INPUT_IDS]))
    single = {name: values[:1] for name, values in batch.items()}
    expected, actual = exact.run(LAST_HIDDEN_STATE, batch), static.run(LAST_HIDDEN_STATE, batch)
    assert 1e-6 < np.abs(actual - expected).max() < 0.2 * np.abs(expected).max()
    np.testing.assert_allclose(static.run(LAST_HIDDEN_STATE, single), actual[:1], atol=1e-6)
    assert (
        np.abs(
            dynamic.run(LAST_HIDDEN_STATE, single) - dynamic.run(LAST_HIDDEN_STATE, batch)[:1]
        ).max()
        > 1e-6
    )


def test_ranges_cover_all_sequences(class_folder: Path, tmp_path: Path) -> None:
    model, graph = fine_tuned_model(*TASKS["class"]), class_folder / GRAPH_FILE

    def ranges(part: slice, observer: RangeObserver = "minmax") -> dict[str, tuple[float, float]]:
        calibration = ActivationCalibration.from_examples(model, classes()[part], observer)
        overrides = calibration.tensor_overrides(graph, tmp_path)
        return {name: (tensor["rmin"], tensor["rmax"]) for name, (tensor,) in overrides.items()}

    first, second, both = ranges(slice(16)), ranges(slice(16, None)), ranges(slice(None))
    for name, (low, high) in both.items():
        assert low == min(first[name][0], second[name][0])
        assert high == max(first[name][1], second[name][1])
        assert low < high
    for name, (low, high) in ranges(slice(None), "entropy").items():
        assert both[name][0] - 1e-6 <= low < high <= both[name][1] + 1e-6


@pytest.mark.parametrize(
    ("name", "head", "message"),
    [
        ("tags", {"kind": "bilstm", "width": 8}, r"bilstm reads words"),
        ("class", {"kind": "plain", "pooling": "siamese"}, r"siamese encodes two texts separately"),
    ],
)
def test_unsupported_heads_are_refused(
    name: str, head: dict[str, Any], message: str, tmp_path: Path
) -> None:
    task, examples, _ = TASKS[name]
    model = fine_tuned_model(task, examples, head)
    with pytest.raises(UserError, match=message):
        export_onnx(model, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []
