"""Static embeddings: vectors of single tokens in the first principal components."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.compression.vocabulary.narrower_embeddings import factorise_embeddings
from bertwright.compression.vocabulary.static_embeddings import static_embedding_model
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models.text_model import TextModel
from small_encoders import Pretrained
from small_tasks import TEXTS

WIDTH = 32
"""The width of a toy model."""
SMOOTHING = 1e-3
"""The constant a of Arora et al. 2017."""


def distances(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors[:, None] - vectors[None], axis=-1)


def table_of(model: TextModel) -> np.ndarray:
    return model.model.embedding_table.detach().cpu().numpy()


def test_distances_between_tokens_are_those_of_their_states(pretrained: Pretrained) -> None:
    """At full width and equal probabilities, the vectors are rotated only."""
    model = pretrained()
    specials = model.tokenizer.special_tokens
    token_ids = [n for n in range(model.tokenizer.vocab_size) if n not in specials.all]
    static = static_embedding_model(model, WIDTH, Counter())
    vectors = table_of(static)[token_ids]
    states = model.embed_ids([[specials.start, n, specials.end] for n in token_ids])
    probability = 1 / len(token_ids)
    expected = distances(states) * SMOOTHING / (SMOOTHING + probability)
    np.testing.assert_allclose(distances(vectors), expected, atol=1e-4)
    assert not table_of(static)[sorted(specials.all)].any()
    # A narrow table has the first of these components.
    narrow = table_of(static_embedding_model(model, 5, Counter()))
    np.testing.assert_allclose(narrow[token_ids], vectors[:, :5], atol=1e-5)


def test_frequent_tokens_have_smaller_vectors(pretrained: Pretrained) -> None:
    model = pretrained()
    counts = Counter(model.tokenizer.encode(" ".join(TEXTS)))
    even, weighted = (table_of(static_embedding_model(model, 8, c)) for c in (Counter(), counts))
    lengths = np.linalg.norm(weighted, axis=1) / np.maximum(np.linalg.norm(even, axis=1), 1e-12)
    specials = model.tokenizer.special_tokens.all
    token_ids = [n for n in range(model.tokenizer.vocab_size) if n not in specials]
    number, smoothed = len(token_ids), np.array([counts[n] + 1 for n in token_ids])
    by_count = SMOOTHING / (SMOOTHING + smoothed / smoothed.sum())
    plain = SMOOTHING / (SMOOTHING + 1 / number)
    np.testing.assert_allclose(lengths[token_ids], by_count / plain, rtol=1e-4)
    # Without counts, the n-th token is as frequent as the n-th word of a natural text.
    zipf = 1 / np.arange(1, number + 1)
    by_rank = SMOOTHING / (SMOOTHING + zipf / zipf.sum())
    ranked = np.linalg.norm(table_of(static_embedding_model(model, 8)), axis=1)
    lengths = ranked / np.maximum(np.linalg.norm(even, axis=1), 1e-12)
    np.testing.assert_allclose(lengths[token_ids], by_rank / plain, rtol=1e-4)


def test_a_static_model_can_be_saved_and_exported(pretrained: Pretrained, tmp_path: Path) -> None:
    pretrained("roberta").save(tmp_path / "whole")
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS))
    arguments = ["static", str(tmp_path / "whole"), str(tmp_path / "texts.txt"), "--width", "12"]
    result = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "table"), "--json"])
    assert result.exit_code == 0, result.output
    table = load(tmp_path / "table", "float32")
    texts = TEXTS[:3]
    for text, vector in zip(texts, table.embed(texts), strict=True):
        ids = table.tokenizer.encode(text)
        expected = table_of(table)[ids].sum(0) / (len(ids) + 2)
        np.testing.assert_allclose(vector, expected, atol=1e-6)
    export_onnx(table, tmp_path / "graph")
    graph = load(tmp_path / "graph")
    np.testing.assert_allclose(graph.embed(texts), table.embed(texts), atol=1e-6)


def test_the_width_is_at_most_that_of_the_states(pretrained: Pretrained) -> None:
    for width in (0, 33):
        with pytest.raises(UserError, match="1 to 32"):
            static_embedding_model(pretrained(), width)


def test_a_static_table_can_be_narrowed(pretrained: Pretrained) -> None:
    static = static_embedding_model(pretrained(), 12)
    narrow = factorise_embeddings(static.model, 5)
    table = table_of(static).astype(np.float64)
    left, values, right = np.linalg.svd(table, full_matrices=False)
    expected = (left[:, :5] * values[:5]) @ right[:5]
    vectors = narrow.encoder(torch.arange(len(table))[None]).detach()[0]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
