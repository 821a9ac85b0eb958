"""An ONNX folder is the model that it was exported from, without its weights."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import bertwright as bw
from bertwright.cli.application import app
from bertwright.encoder.kernels.eight_bits import saturates
from bertwright.errors import MissingExtra, UserError
from bertwright.files import digests
from bertwright.interop.onnx import parity, timing, tracing, writing
from bertwright.interop.onnx.about import ABOUT, GRAPH, INT8, About
from bertwright.interop.onnx.inputs import PIECES, REAL, STATES
from bertwright.interop.onnx.measuring import measured
from bertwright.interop.onnx.reading import OnnxModel, load_onnx
from bertwright.interop.onnx.writing import export_onnx
from bertwright.interop.sentence_transformers import export_sentence_transformers
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Pooling
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.formats.tables import Columns
from bertwright.text.histories import item_tokenizer
from bertwright.text.tokenizers import WordPieceChoice
from recipes_at_toy_size import shaken, toy
from small_tasks import ENGLISH, TEXTS, classes

OWN = table_task("own", Columns())

SOME = ["The red bird", "", TEXTS[0], " ".join(TEXTS), "The old tree is new"]
"""Of several lengths, one of them longer than any row."""


@pytest.fixture(scope="module")
def model() -> TextModel:
    """Wide enough that its weights are most of its graph, and of one block, as it is a folder that
    is asked for; its vectors are not those of any encoder."""
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    own = ("encoder.width=128", "encoder.depth.layers=1", "encoder.positions.size=48")
    recipe = toy("bert", *own, "vectors={pooling: cls, longest: 40}")
    net = shaken(Model.build(recipe, tokenizer.size), 0.05)
    return TextModel(net, tokenizer, "float32")


@pytest.fixture(scope="module")
def source(model: TextModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx") / "source"
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def exported(model: TextModel, source: Path) -> Path:
    export_onnx(model, source.parent / "exported", int8=True, parent=source)
    return source.parent / "exported"


@pytest.mark.parametrize("pooling", [None, "mean", "cls"])
@pytest.mark.parametrize("normalise", [True, False])
def test_vectors_are_those_of_the_model(
    model: TextModel, exported: Path, pooling: Pooling | None, normalise: bool
) -> None:
    opened = bw.load(exported, "float32", threads=1)
    ours, theirs = (each.embed(SOME, pooling, normalise) for each in (model, opened))
    assert theirs.dtype == np.float32
    assert np.abs(ours - theirs).max() < 1e-4
    assert opened.embed([]).shape == model.embed([]).shape


def test_states_of_pieces_are_those_of_the_model(model: TextModel, exported: Path) -> None:
    opened = bw.load(exported, "float32")
    for ours, theirs in zip(model.encode(SOME), opened.encode(SOME), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4)


def test_eight_bits_are_smaller_and_close(model: TextModel, exported: Path) -> None:
    sizes = {name: (exported / name).stat().st_size for name in (GRAPH, INT8)}
    assert sizes[INT8] < 0.4 * sizes[GRAPH]
    opened = bw.load(exported)
    cosines = (model.embed(SOME, normalise=True) * opened.embed(SOME, normalise=True)).sum(1)
    assert 0.97 < cosines.min() < 1.0 - 1e-6


def test_a_graph_names_its_origin_and_no_file_of_this_machine(source: Path, exported: Path) -> None:
    about, written = About.read(exported), (exported / GRAPH).read_bytes()
    assert about.parent is not None
    assert about.parent.encode() in written
    assert about.reduce_range == saturates()
    assert b"site-packages" not in written
    assert str(Path(bw.__file__).parent).encode() not in written
    assert "safetensors" not in " ".join(file.name for file in exported.iterdir())


def test_threads_are_told_before_anything_runs(source: Path, exported: Path) -> None:
    for number in (1, 2):
        opened = bw.load(exported, threads=number)
        assert isinstance(opened, OnnxModel)
        assert opened.session.threads == number
    with pytest.raises(UserError, match="is no ONNX folder"):
        bw.load(source, threads=1)


def test_opening_needs_neither_the_exporter_nor_a_compiler(exported: Path) -> None:
    code = f"""
import sys
import bertwright as bw
bw.load({str(exported)!r}).embed(["The red bird"])
print(*sorted({{"torch._dynamo", "onnx", "onnxscript"}} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_what_times_a_graph_is_there_at_once() -> None:
    code = "import sys, bertwright.interop.onnx.timing; print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, folder: model.fill_mask("The [MASK] bird"),
        lambda model, folder: model.score("The red bird"),
        lambda model, folder: model.generate("The red"),
        lambda model, folder: model.save(folder),
        lambda model, folder: model.record("*"),
        lambda model, folder: model.replace("*", abs),
        lambda model, folder: model.embed("The red bird", layers="0"),
        lambda model, folder: model.model(None),
        lambda model, folder: bw.finetune(model, OWN, train=classes(), out=folder),
        lambda model, folder: export_onnx(model, folder),
        lambda model, folder: export_sentence_transformers(model, folder),
    ],
)
def test_what_needs_weights_is_refused(exported: Path, tmp_path: Path, ask) -> None:
    with pytest.raises(UserError, match=r"the folder that it was exported from|asks nothing"):
        ask(bw.load(exported), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_another_precision_is_refused(exported: Path) -> None:
    with pytest.raises(UserError, match="float32 or in 8 bits"):
        bw.load(exported, "bf16")


@pytest.mark.parametrize("name", [INT8, ABOUT])
def test_a_damaged_file_is_named(exported: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(exported, tmp_path / "copied")
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    with pytest.raises(UserError, match=f"copied/{name}"):
        bw.load(folder)


def test_a_graph_may_be_left_out(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "copied")
    (folder / GRAPH).unlink()
    assert bw.load(folder).embed("The red bird").shape == (1, 128)
    with pytest.raises(UserError, match=r"model\.onnx is missing"):
        bw.load(folder, "float32")


@pytest.fixture
def written_before(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting copies the graph that is there."""

    def copy(*arguments: Any) -> int:
        shutil.copy(exported / GRAPH, arguments[-1])
        return 20

    monkeypatch.setattr(writing, "write_graph", copy)


@pytest.mark.usefixtures("written_before")
def test_a_graph_that_differs_is_not_kept(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "TOLERANCE", 0.0)
    with pytest.raises(UserError, match="what was written differs from the model by"):
        export_onnx(model, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("written_before")
def test_a_graph_that_is_not_finite_in_8_bits_is_not_kept(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quantise(graph: Path, out: Path, *_: object) -> None:
        spoiled = onnx.load(graph)
        largest = max(spoiled.graph.initializer, key=lambda each: len(each.raw_data))
        largest.raw_data = b"\xff" * len(largest.raw_data)
        onnx.save(spoiled, out)

    monkeypatch.setattr(writing, "quantise", quantise)
    with pytest.raises(UserError, match=r"bert cannot be computed in 8 bits: .* is not finite"):
        export_onnx(model, tmp_path / "exported", int8=True)
    assert list(tmp_path.iterdir()) == []


def test_what_a_runtime_refuses_is_said(model: TextModel) -> None:
    class Refusing:
        def run(self, *_: object) -> NoReturn:
            raise RuntimeError("no kernel for this\nat node 7")

    with pytest.raises(UserError, match=r"bert cannot be computed in 8 bits: no kernel for this$"):
        parity.require_computed(model, (PIECES, REAL), (STATES,), Refusing())


def test_a_graph_of_short_rows_alone_is_refused(
    model: TextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    performer = Model.build(toy("performer", "encoder.visibility=causal"), 40)
    monkeypatch.setattr("bertwright.encoder.mixers.random_features.CHUNK", 16)
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: False)
    with pytest.raises(UserError, match="computes rows of more than 16 places otherwise"):
        tracing.write_graph(
            TextModel(performer, model.tokenizer, "float32"), ("states",), {}, tmp_path / GRAPH
        )


def test_what_holds_something_is_not_overwritten(model: TextModel, source: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        export_onnx(model, source)
    assert not (source / ABOUT).exists()


@pytest.mark.parametrize("library", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_names_the_extra(
    model: TextModel, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(
        "bertwright.extras.find_spec", lambda name: None if name == library else name
    )
    wanted = rf"{library} is not installed: run pip install 'bertwright\[onnx\]'"
    with pytest.raises(MissingExtra, match=wanted):
        export_onnx(model, tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []
    if library == "onnxruntime":
        with pytest.raises(MissingExtra, match=wanted):
            bw.load(exported)


def test_the_command_line_measures_what_it_wrote(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 2)
    monkeypatch.setattr(timing, "STEPS", 2)
    (tmp_path / "texts.tsv").write_text("\n".join(["review", *TEXTS]))
    seen = ["--texts", str(tmp_path / "texts.tsv"), "--column", "review", "--observer", "entropy"]
    arguments = ["export", str(source), "--to", "onnx", "--int8", *seen, "--json"]
    said = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "exported")])
    assert said.exit_code == 0, said.output
    result = json.loads(said.stdout)
    exact, small = result["graphs"]
    assert result["max_difference"] < 1e-4
    assert small["bytes"] < exact["bytes"]
    assert 0.97 < small["cosine"] < 1.0
    assert small["ms_at_16"] > 0.0
    assert type(load_onnx(tmp_path / "exported")) is OnnxModel
    assert About.read(tmp_path / "exported").ranges == f"entropy of {len(TEXTS)} rows"


def test_of_items_what_is_read_to_measure_is_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 2)
    monkeypatch.setattr(timing, "STEPS", 2)
    tokenizer = item_tokenizer([f"i{number}" for number in range(9)])
    model = TextModel(Model.build(toy("bert4rec"), tokenizer.size), tokenizer)
    export_onnx(model, tmp_path / "exported", int8=True)
    _, small = measured(tmp_path / "exported")
    assert 0.9 < small["cosine"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onnx", "--verify"], "leave --verify out"),
        (["--to", "onnx", "--family", "bert"], "leave --family out"),
        (["--int8"], "leave --int8 out"),
        (["--to", "onnx", "--texts", "some.txt"], "leave --texts out"),
        (["--to", "onnx", "--int8", "--observer", "entropy"], "leave --observer out"),
        (["--to", "onnx", "--int8", "--column", "review"], "leave --column out"),
        (["--to", "onnx", "--int8", "--data", "."], "--data is for a fine-tuned model"),
        (["--to", "onnx", "--int8", "--texts", "some.txt"], "some.txt"),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    source: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "exported"
    said = CliRunner().invoke(app, ["export", str(source), *arguments, "-o", str(out)])
    assert isinstance(said.exception, UserError)
    assert message in str(said.exception)
    assert not out.exists()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "exported"
    said = CliRunner().invoke(
        app, ["export", str(tmp_path / "empty"), "--to", "onnx", "-o", str(out)]
    )
    assert isinstance(said.exception, UserError)
    assert "holds no model" in str(said.exception)
    assert not out.exists()


def test_a_graph_whose_weights_are_no_numbers_is_refused(exported: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(exported, copy)
    graph = onnx.load(copy / GRAPH)
    for tensor in graph.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 2:
            harmed = np.full_like(values, np.nan)
            tensor.CopyFrom(onnx.numpy_helper.from_array(harmed, tensor.name))
    onnx.save(graph, copy / GRAPH)
    about = json.loads((copy / ABOUT).read_text())
    about["files"] |= {GRAPH: digests(copy / GRAPH)[GRAPH]}
    (copy / ABOUT).write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"model\.onnx gives NaN or infinity"):
        load_onnx(copy, "float32")
