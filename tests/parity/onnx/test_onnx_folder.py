"""An ONNX folder behaves as its model, without the weights."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner

import bertwright as bw
from bertwright.cli.app import app
from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.files import file_digests
from bertwright.data.interaction_histories import item_tokenizer
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.interop import parity
from bertwright.interop.graph import tracing
from bertwright.interop.graph.inputs import (
    ATTENTION_MASK,
    INPUT_IDS,
    LAST_HIDDEN_STATE,
    SENTENCE_EMBEDDING,
    TOKEN_TYPE_IDS,
)
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.interop.graph.parity import require_finite_outputs
from bertwright.interop.onnx import exporter as exporter
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.manifest import (
    GRAPH_FILE,
    INT8_GRAPH_FILE,
    MANIFEST_FILE,
    OnnxManifest,
)
from bertwright.interop.onnx.model import OnnxModel, load_onnx
from bertwright.interop.onnx.session import OnnxSession
from bertwright.interop.sentence_transformers import export_sentence_transformers
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.inference.int8_linear import int8_sums_saturate
from bertwright.recipes import Pooling, SentenceVectorSettings
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.formats.tables import Columns
from bertwright.timing import graph_worker as timing
from bertwright.timing.onnx_graphs import measure_graphs
from small_tasks import ENGLISH, TEXTS, classes
from toy_recipes import shaken, toy

TASK = table_task("task", Columns())

SAMPLES = ["The red bird", "", TEXTS[0], " ".join(TEXTS), "The old tree is new"]
"""Several lengths, one beyond the maximum."""


@pytest.fixture(scope="module")
def model() -> TextModel:
    """A model of one block, wide enough that weights dominate the graph's size."""
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    sizes = ("encoder.width=128", "encoder.depth.layers=1", "encoder.positions.size=48")
    recipe = toy("bert", *sizes, "vectors={pooling: cls, longest: 40}")
    network = shaken(Model.build(recipe, tokenizer.vocab_size), 0.05)
    return TextModel(network, tokenizer, "float32")


@pytest.fixture(scope="module")
def source(model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx") / "source"
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def exported(model: TextModel, source: Path) -> Path:
    export_onnx(model, source.parent / "exported", int8=True, source_folder=source)
    return source.parent / "exported"


@pytest.mark.parametrize("pooling", [None, "mean", "cls"])
@pytest.mark.parametrize("normalise", [True, False])
def test_vectors_equal_the_models(
    model: TextModel, exported: Path, pooling: Pooling | None, normalise: bool
) -> None:
    opened = bw.load(exported, "float32", threads=1)
    ours, theirs = (network.embed(SAMPLES, pooling, normalise) for network in (model, opened))
    assert theirs.dtype == np.float32
    assert np.abs(ours - theirs).max() < 1e-4
    assert opened.embed([]).shape == model.embed([]).shape


def test_hidden_states_equal_the_models(model: TextModel, exported: Path) -> None:
    opened = bw.load(exported, "float32")
    for ours, theirs in zip(model.encode(SAMPLES), opened.encode(SAMPLES), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_sentence_embeddings_do_not_depend_on_the_batch(
    model: TextModel, exported: Path, batch_size: int
) -> None:
    session, sequences = OnnxSession(exported / GRAPH_FILE), model.encode_ids(SAMPLES)
    expected = model.embed(SAMPLES)
    for first in range(0, len(sequences), batch_size):
        batch = sequences[first : first + batch_size]
        # Two positions of padding even after the longest.
        mask = np.arange(2 + max(map(len, batch))) < np.array([[len(ids)] for ids in batch])
        token_ids = np.full(mask.shape, 7, np.int64)
        token_ids[mask] = np.concatenate(batch)
        inputs = {INPUT_IDS: token_ids, ATTENTION_MASK: mask.astype(np.int64)}
        inputs[TOKEN_TYPE_IDS] = np.zeros_like(token_ids)
        vectors = session.run(SENTENCE_EMBEDDING, inputs)
        np.testing.assert_allclose(vectors, expected[first : first + batch_size], atol=1e-5)


def test_sentence_embeddings_are_scaled_and_truncated(model: TextModel) -> None:
    states, mask = torch.randn(2, 3, 8), torch.tensor([[0, 0, -1], [0, 0, 0]])
    vectors = {"pooling": "mean", "normalise": True, "truncate_dim": 4}
    outputs = GraphOutputs((SENTENCE_EMBEDDING,), SentenceVectorSettings(**vectors))
    means = torch.stack((states[0, :2].mean(0), states[1].mean(0)))
    expected = (means / means.norm(dim=1, keepdim=True))[:, :4]
    torch.testing.assert_close(outputs.pool(states, mask), expected)
    unit = replace(outputs, unit_length=True).pool(states, mask)
    torch.testing.assert_close(unit, expected / expected.norm(dim=1, keepdim=True))


def test_the_card_and_the_manifest_tell_the_loss(exported: Path) -> None:
    loss = OnnxManifest.read(exported).int8_loss
    assert loss is not None
    assert loss.cosine < 1
    assert f"cosine {loss.cosine:.4f}" in (exported / "README.md").read_text()


def test_int8_is_smaller_and_close(model: TextModel, exported: Path) -> None:
    sizes = {name: (exported / name).stat().st_size for name in (GRAPH_FILE, INT8_GRAPH_FILE)}
    assert sizes[INT8_GRAPH_FILE] < 0.4 * sizes[GRAPH_FILE]
    opened = bw.load(exported)
    cosines = (model.embed(SAMPLES, normalise=True) * opened.embed(SAMPLES, normalise=True)).sum(1)
    assert 0.97 < cosines.min() < 1.0 - 1e-6


def test_a_graph_names_its_origin_and_no_file_of_this_machine(source: Path, exported: Path) -> None:
    manifest, content = OnnxManifest.read(exported), (exported / GRAPH_FILE).read_bytes()
    assert manifest.source_sha256 is not None
    assert manifest.source_sha256.encode() in content
    assert manifest.reduce_range == int8_sums_saturate()
    assert b"site-packages" not in content
    assert str(Path(bw.__file__).parent).encode() not in content
    assert "safetensors" not in " ".join(file.name for file in exported.iterdir())


def test_threads_are_set_on_loading(source: Path, exported: Path) -> None:
    for threads in (1, 2):
        opened = bw.load(exported, threads=threads)
        assert isinstance(opened, OnnxModel)
        assert opened.session.threads == threads
    with pytest.raises(UserError, match="threads applies to ONNX models only"):
        bw.load(source, threads=1)


def test_opening_needs_neither_the_exporter_nor_a_compiler(exported: Path) -> None:
    code = f"""
import sys
import bertwright as bw
bw.load({str(exported)!r}).embed(["The red bird"])
print(*sorted({{"torch._dynamo", "onnx", "onnxscript"}} & set(sys.modules)))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == []


def test_the_timing_worker_does_not_import_torch() -> None:
    code = "import sys, bertwright.timing.graph_worker; print('torch' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "False"


@pytest.mark.parametrize(
    "operation",
    [
        lambda model, folder: model.fill_mask("The [MASK] bird"),
        lambda model, folder: model.score("The red bird"),
        lambda model, folder: model.generate("The red"),
        lambda model, folder: model.save(folder),
        lambda model, folder: model.record("*"),
        lambda model, folder: model.replace("*", abs),
        lambda model, folder: model.embed("The red bird", layers="0"),
        lambda model, folder: model.model(None),
        lambda model, folder: bw.finetune(model, TASK, train=classes(), output=folder),
        lambda model, folder: export_onnx(model, folder),
        lambda model, folder: export_sentence_transformers(model, folder),
    ],
)
def test_operations_on_weights_are_refused(exported: Path, tmp_path: Path, operation) -> None:
    with pytest.raises(UserError, match=r"the folder that it was exported from|cannot generate"):
        operation(bw.load(exported), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_another_precision_is_refused(exported: Path) -> None:
    with pytest.raises(UserError, match="float32 or int8 only"):
        bw.load(exported, "bf16")


@pytest.mark.parametrize("name", [INT8_GRAPH_FILE, MANIFEST_FILE])
def test_a_damaged_file_is_named(exported: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(exported, tmp_path / "copied")
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    with pytest.raises(UserError, match=f"copied/{name}"):
        bw.load(folder)


def test_a_graph_may_be_left_out(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "copied")
    (folder / GRAPH_FILE).unlink()
    assert bw.load(folder).embed("The red bird").shape == (1, 128)
    with pytest.raises(UserError, match=r"model\.onnx is missing"):
        bw.load(folder, "float32")


@pytest.fixture
def without_tracing(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting copies the existing graph."""

    def copy(*arguments: Any) -> int:
        shutil.copy(exported / GRAPH_FILE, arguments[-1])
        return 20

    monkeypatch.setattr(exporter, "write_onnx_graph", copy)


@pytest.mark.usefixtures("without_tracing")
def test_a_graph_that_differs_is_not_kept(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "OUTPUT_TOLERANCE", 0.0)
    with pytest.raises(UserError, match="the exported file differs from the model by"):
        export_onnx(model, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_tracing")
def test_an_int8_graph_that_is_not_finite_is_not_kept(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quantise(graph: Path, out: Path, *_: object) -> None:
        damaged = onnx.load(graph)
        largest = max(damaged.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        largest.raw_data = b"\xff" * len(largest.raw_data)
        onnx.save(damaged, out)

    monkeypatch.setattr(exporter, "quantise_graph", quantise)
    with pytest.raises(UserError, match=r"bert cannot be computed in 8 bits: .* is not finite"):
        export_onnx(model, tmp_path / "exported", int8=True)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_runtime_are_reported(model: TextModel) -> None:
    class Refusing:
        def run(self, *_: object) -> NoReturn:
            raise RuntimeError("no kernel for this\nat node 7")

    with pytest.raises(UserError, match=r"bert cannot be computed in 8 bits: no kernel for this$"):
        require_finite_outputs(model, (LAST_HIDDEN_STATE,), Refusing())


def test_a_graph_of_short_sequences_is_refused(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    performer = Model.build(toy("performer", "encoder.visibility=causal"), 40)
    monkeypatch.setattr("bertwright.modules.attention.random_features.CHUNK_LENGTH", 16)
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: False)
    with pytest.raises(UserError, match="computes sequences of more than 16 tokens differently"):
        performer_model = TextModel(performer, model.tokenizer, "float32")
        outputs = GraphOutputs.of(performer_model)
        tracing.write_onnx_graph(performer_model, outputs, {}, tmp_path / GRAPH_FILE)


def test_an_existing_folder_is_not_overwritten(model: TextModel, source: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        export_onnx(model, source)
    assert not (source / MANIFEST_FILE).exists()


@pytest.mark.parametrize("library", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_names_the_extra(
    model: TextModel, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(
        "bertwright.core.optional_dependencies.find_spec",
        lambda name: None if name == library else name,
    )
    message = rf"{library} is not installed: run pip install 'bertwright\[onnx\]'"
    with pytest.raises(MissingExtra, match=message):
        export_onnx(model, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []
    if library == "onnxruntime":
        with pytest.raises(MissingExtra, match=message):
            bw.load(exported)


@pytest.mark.full
def test_the_command_line_measures_the_graphs(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "NUM_ROUNDS", 2)
    monkeypatch.setattr(timing, "STEPS_PER_ROUND", 2)
    (tmp_path / "texts.tsv").write_text("\n".join(["review", *TEXTS]))
    calibration = [
        "--texts",
        str(tmp_path / "texts.tsv"),
        "--column",
        "review",
        "--observer",
        "entropy",
    ]
    arguments = ["export", str(source), "--to", "onnx", "--int8", *calibration, "--json"]
    output = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "exported")])
    assert output.exit_code == 0, output.output
    result = json.loads(output.stdout)
    float32, int8 = result["graphs"]
    assert result["max_difference"] < 1e-4
    assert int8["bytes"] < float32["bytes"]
    assert 0.97 < int8["cosine"] < 1.0
    assert int8["ms_at_16"] > 0.0
    assert result["int8_loss"]["texts"] == f"{len(TEXTS)} given texts"
    assert result["int8_loss"]["cosine"] == int8["cosine"]
    assert type(load_onnx(tmp_path / "exported")) is OnnxModel
    assert (
        OnnxManifest.read(tmp_path / "exported").calibration == f"entropy of {len(TEXTS)} sequences"
    )


@pytest.mark.full
def test_item_models_are_measured_with_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "NUM_ROUNDS", 2)
    monkeypatch.setattr(timing, "STEPS_PER_ROUND", 2)
    tokenizer = item_tokenizer([f"i{number}" for number in range(9)])
    model = TextModel(Model.build(toy("bert4rec"), tokenizer.vocab_size), tokenizer)
    export_onnx(model, tmp_path / "exported", int8=True)
    _, int8 = measure_graphs(tmp_path / "exported")
    assert 0.9 < int8["cosine"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onnx", "--verify"], "leave --verify out"),
        (["--to", "onnx", "--family", "bert"], "leave --family out"),
        (["--int8"], "leave --int8 out"),
        (["--normalise"], "leave --normalise out"),
        (["--to", "onnx", "--texts", "some.txt"], "leave --texts out"),
        (["--to", "onnx", "--int8", "--observer", "entropy"], "leave --observer out"),
        (["--to", "onnx", "--int8", "--column", "review"], "leave --column out"),
        (["--to", "onnx", "--int8", "--data", "."], "--data is for a fine-tuned model"),
        (["--to", "onnx", "--int8", "--texts", "some.txt"], "some.txt"),
    ],
)
def test_options_without_effect_are_refused(
    source: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "exported"
    result = CliRunner().invoke(app, ["export", str(source), *arguments, "-o", str(out)])
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert not out.exists()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "exported"
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "empty"), "--to", "onnx", "-o", str(out)]
    )
    assert isinstance(result.exception, UserError)
    assert "holds no model" in str(result.exception)
    assert not out.exists()


def test_a_graph_with_nan_weights_is_refused(exported: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(exported, copy)
    graph = onnx.load(copy / GRAPH_FILE)
    for tensor in graph.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 2:
            damaged = np.full_like(values, np.nan)
            tensor.CopyFrom(onnx.numpy_helper.from_array(damaged, tensor.name))
    onnx.save(graph, copy / GRAPH_FILE)
    manifest = json.loads((copy / MANIFEST_FILE).read_text())
    manifest["file_sha256"] = file_digests((copy / GRAPH_FILE).parent)
    (copy / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"model\.onnx returns NaN or infinity"):
        load_onnx(copy, "float32")
