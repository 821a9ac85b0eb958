"""A table says of a piece alone what the model does, in the axes that tell most."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.compression.static_table import SMOOTHING, static_table
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.writing import export_onnx
from bertwright.model.text_model import TextModel
from small_encoders import Pretrained
from small_tasks import TEXTS

WIDTH = 32
"""As wide as a toy."""


def distances(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors[:, None] - vectors[None], axis=-1)


def rows(model: TextModel) -> np.ndarray:
    return model.model.embedding.detach().cpu().numpy()


def test_pieces_are_as_far_apart_as_their_states(pretrained: Pretrained) -> None:
    """At full width, where all are equally likely: axes are turned, and nothing else."""
    whole = pretrained()
    specials = whole.tokenizer.specials
    pieces = [n for n in range(whole.tokenizer.size) if n not in specials.all]
    table = static_table(whole, WIDTH, Counter())
    own = rows(table)[pieces]
    states = whole.embed_rows([[specials.start, n, specials.end] for n in pieces])
    chance = 1 / len(pieces)
    expected = distances(states) * SMOOTHING / (SMOOTHING + chance)
    np.testing.assert_allclose(distances(own), expected, atol=1e-4)
    assert not rows(table)[sorted(specials.all)].any()
    # A narrow table has the first of these axes.
    narrow = rows(static_table(whole, 5, Counter()))
    np.testing.assert_allclose(narrow[pieces], own[:, :5], atol=1e-5)


def test_what_is_frequent_counts_less(pretrained: Pretrained) -> None:
    whole = pretrained()
    counts = Counter(whole.tokenizer.encode(" ".join(TEXTS)))
    even, own = (rows(static_table(whole, 8, given)) for given in (Counter(), counts))
    lengths = np.linalg.norm(own, axis=1) / np.maximum(np.linalg.norm(even, axis=1), 1e-12)
    specials = whole.tokenizer.specials.all
    pieces = [n for n in range(whole.tokenizer.size) if n not in specials]
    ordered = sorted(pieces, key=lambda n: counts[n])
    assert (np.diff(lengths[ordered]) < 1e-6).all()
    assert lengths[ordered[0]] > 2 * lengths[ordered[-1]]


def test_a_table_is_a_model_like_any_other(pretrained: Pretrained, tmp_path: Path) -> None:
    pretrained("roberta").save(tmp_path / "whole")
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS))
    stated = ["static", str(tmp_path / "whole"), str(tmp_path / "texts.txt"), "--width", "12"]
    result = CliRunner().invoke(app, [*stated, "-o", str(tmp_path / "table"), "--json"])
    assert result.exit_code == 0, result.output
    table = load(tmp_path / "table", "float32")
    texts = TEXTS[:3]
    for text, found in zip(texts, table.embed(texts), strict=True):
        ids = table.tokenizer.encode(text)
        np.testing.assert_allclose(found, rows(table)[ids].sum(0) / (len(ids) + 2), atol=1e-6)
    export_onnx(table, tmp_path / "graph")
    graph = load(tmp_path / "graph")
    np.testing.assert_allclose(graph.embed(texts), table.embed(texts), atol=1e-6)


def test_a_table_has_no_more_axes_than_states(pretrained: Pretrained) -> None:
    with pytest.raises(UserError, match="1 to 32"):
        static_table(pretrained(), 33)
