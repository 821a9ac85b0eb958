"""Whitened vectors have mean 0 and covariance 1, and keep the directions of largest variance."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.compression import whitening
from bertwright.compression.whitening import whiten
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.testing.toy import randomise, toy_text_model
from small_encoders import Pretrained
from small_tasks import ENGLISH, similar

WORDS = sorted(set(ENGLISH.split()))
TEXTS = [f"{first} {second}" for first in WORDS[:14] for second in WORDS[3:17]]
WIDTH, NUM_DIRECTIONS = 32, 31
"""A final layer norm fixes one direction."""


@pytest.fixture(scope="module")
def model() -> TextModel:
    return toy_text_model(TEXTS)


def test_whitened_vectors_are_uncorrelated(model: TextModel) -> None:
    whitened = whiten(model, TEXTS)
    vectors = whitened.model.embed(TEXTS)
    np.testing.assert_allclose(vectors.mean(0), np.zeros(NUM_DIRECTIONS), atol=1e-3)
    np.testing.assert_allclose(vectors.T @ vectors / len(TEXTS), np.eye(NUM_DIRECTIONS), atol=2e-3)
    assert (whitened.num_texts, whitened.explained_variance) == (len(TEXTS), pytest.approx(1.0))


@pytest.mark.parametrize("width", [1, 6])
def test_the_directions_of_largest_variance_are_kept(model: TextModel, width: int) -> None:
    whitened = whiten(model, TEXTS, width)
    vectors, original = whitened.model.embed(TEXTS), model.embed(TEXTS).astype(np.float64)
    centred = original - original.mean(0)
    _, scales, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ directions[:width].T / (scales[:width] / len(TEXTS) ** 0.5)
    # A direction has no sign.
    np.testing.assert_allclose(np.abs(vectors), np.abs(expected), atol=2e-3)
    explained = (scales[:width] ** 2).sum() / (scales**2).sum()
    assert whitened.explained_variance == pytest.approx(explained)


def test_texts_are_read_in_batches(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = whiten(model, TEXTS, 6).model.embed(TEXTS)
    monkeypatch.setattr(whitening, "BATCH_SIZE", 7)
    in_batches = whiten(model, iter(TEXTS), 6).model.embed(TEXTS)
    np.testing.assert_allclose(np.abs(in_batches), np.abs(whole), atol=1e-3)


def test_whitening_follows_a_projection() -> None:
    model = toy_text_model(TEXTS, "vectors.projection={width: 8}")
    assert model.model.vector_projection is not None
    randomise(model.model.vector_projection)
    vectors = whiten(model, TEXTS).model.embed(TEXTS)
    np.testing.assert_allclose(vectors.T @ vectors / len(TEXTS), np.eye(8), atol=2e-3)
    directly = model.embed(TEXTS).astype(np.float64)
    centred = directly - directly.mean(0)
    inverse = np.linalg.inv(centred.T @ centred / len(TEXTS))
    # Whitening is unique up to a rotation, so distances are those of Mahalanobis.
    expected = np.einsum("nd,de,ne->n", centred, inverse, centred)
    np.testing.assert_allclose((vectors**2).sum(1), expected, rtol=5e-3)


def test_what_cannot_be_whitened_is_refused(model: TextModel, tmp_path: Path) -> None:
    export_onnx(model, tmp_path / "graph")
    task = table_task("task", Columns(), SimilarityOutput(max_label=5.0))
    fine_tuned = finetune(model, task, train=similar(), dev=similar(), epochs=0).model
    bounded = toy_text_model(TEXTS, "vectors.projection={width: 8, activation: tanh}")
    refused = {
        "with 32 texts: name more": (model, TEXTS[:WIDTH], 2),
        "with 0 texts": (model, [], None),
        "31 directions, and 32 were requested": (model, TEXTS, WIDTH),
        "have the same vector": (model, ["red bird"] * 50, None),
        "projected with tanh": (bounded, TEXTS, None),
        "is fine-tuned for": (fine_tuned, TEXTS, None),
        "ONNX graph": (load(tmp_path / "graph"), TEXTS, None),
    }
    for message, arguments in refused.items():
        with pytest.raises(UserError, match=message):
            whiten(*arguments)


def test_the_command_writes_a_model(pretrained: Pretrained, tmp_path: Path) -> None:
    pretrained().save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    arguments = [*map(str, (tmp_path / "model", tmp_path / "texts.txt"))]
    arguments += ["--dimensions", "4", "-o", str(tmp_path / "white"), "--precision", "float32"]
    result = CliRunner().invoke(app, ["whiten", *arguments])
    assert result.exit_code == 0, result.output
    vectors = load(tmp_path / "white", "float32").embed(TEXTS)
    np.testing.assert_allclose(np.cov(vectors.T, bias=True), np.eye(4), atol=1e-2)
