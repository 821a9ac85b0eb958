"""A projection maps the pooled vectors of the last layer, wherever texts are embedded."""

from pathlib import Path

import numpy as np
import pytest

from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models.costs import num_parameters_by_part
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.testing.toy import randomise, toy_text_model
from small_tasks import TEXTS, similar

PROJECTIONS = ["{width: 5}", "{width: 5, activation: tanh}", "{width: 40, bias: false}"]


def projecting(projection: str, *overrides: str) -> TextModel:
    model = toy_text_model(TEXTS, f"vectors.projection={projection}", *overrides)
    assert model.model.vector_projection is not None
    randomise(model.model.vector_projection)
    return model


@pytest.fixture(scope="module")
def model() -> TextModel:
    return projecting(PROJECTIONS[0])


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_projections_of_pooled_states(projection: str, pooling: str) -> None:
    model = projecting(projection, f"vectors.pooling={pooling}")
    states = model.encode(TEXTS)
    pooled = np.stack([s.mean(0) if pooling == "mean" else s[0] for s in states])
    parameters = {
        name.rpartition(".")[2]: parameter.detach().numpy()
        for name, parameter in model.model.named_parameters()
        if name.startswith("vector_projection.")
    }
    expected = pooled @ parameters["weight"].T + parameters.get("bias", 0.0)
    if "tanh" in projection:
        expected = np.tanh(expected)
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-5)
    assert model.embed([]).shape == (0, model.model.recipe.vector_width)


def test_other_layers_are_not_projected(model: TextModel) -> None:
    states = model.encode(TEXTS, layers="1")
    means = np.stack([state.mean(0) for state in states])
    np.testing.assert_allclose(model.embed(TEXTS, layers="1"), means, atol=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
def test_the_only_chunk_of_a_text_has_its_vector(model: TextModel, normalise: bool) -> None:
    chunks = model.embed_chunks(TEXTS, 100, normalise=normalise)
    vectors = np.concatenate([part.vectors for part in chunks])
    np.testing.assert_allclose(vectors, model.embed(TEXTS, normalise=normalise), atol=1e-5)


def test_a_saved_model_has_its_projection(model: TextModel, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    saved = load(tmp_path / "saved", "float32")
    np.testing.assert_array_equal(saved.embed(TEXTS), model.embed(TEXTS))


@pytest.mark.full
def test_a_graph_projects_vectors(model: TextModel, tmp_path: Path) -> None:
    export_onnx(model, tmp_path / "graph")
    graph = load(tmp_path / "graph")
    np.testing.assert_allclose(graph.embed(TEXTS), model.embed(TEXTS), atol=1e-5)
    assert graph.embed([]).shape == (0, 5)
    chunks = [m.embed_chunks(TEXTS, 4)[0].vectors for m in (graph, model)]
    np.testing.assert_allclose(chunks[0], chunks[1], atol=1e-5)


def test_fine_tuning_reads_hidden_states(model: TextModel, tmp_path: Path) -> None:
    task = table_task("task", Columns(), SimilarityOutput(max_label=5.0))
    finetune(model, task, output=tmp_path / "tuned", train=similar(), dev=similar(), epochs=0)
    tuned = load(tmp_path / "tuned", "float32")
    assert tuned.embed(TEXTS).shape[1] == model.model.recipe.encoder.width


def test_a_projection_counts_as_a_part(model: TextModel) -> None:
    recipe = model.model.recipe
    parts = num_parameters_by_part(recipe)
    assert parts["vector_projection"] == 5 * recipe.encoder.width + 5
