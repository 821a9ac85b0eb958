"""Spearman of text vectors, by model, dimensions and bits, against an independent computation."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.text_vectors import compress
from bertwright.interop.loading import load

TEXTS = ["an old cat sees a bird", "a new house", "the old tree leaves", "a dog runs", "new cats"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("similar")
    pairs = [(a, b, (3 * i + j) % 6) for i, a in enumerate(TEXTS) for j, b in enumerate(TEXTS)]
    files = {
        "glue/STS-B/dev.tsv": "sentence1\tsentence2\tscore\n",
        "sick/dev.tsv": "sentence_A\tsentence_B\trelatedness_score\n",
        "sick/train.tsv": "sentence_A\tsentence_B\trelatedness_score\n",
    }
    for name, header in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{a}\t{b}\t{score}\n" for a, b, score in pairs)
        (folder / name).write_text(header + lines)
    synsets = [
        {"id": str(n), "words": [t.split()[-1]], "gloss": t, "examples": [f"{t} now"]}
        for n, t in enumerate(TEXTS * 4)
    ]
    (folder / "wordnet").mkdir()
    with gzip.open(folder / "wordnet" / "synsets.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(synset) + "\n" for synset in synsets)
    return folder


def run(*words: object) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, ["vectors", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["results"]


def expected_spearman(model: Path, data: Path, dimensions: int, bits: str) -> float:
    lines = (data / "glue/STS-B/dev.tsv").read_text().splitlines()[1:]
    firsts, seconds, scores = zip(*(line.split("\t") for line in lines), strict=True)
    cosines: list[float] = []
    for first, second in zip(*(load(model).embed([*t]) for t in (firsts, seconds)), strict=True):
        pair = np.stack((first, second))[:, :dimensions].astype(np.float64)
        if bits == "binary":
            pair = np.sign(pair)
        elif bits == "int8":
            pair = np.rint(127 * pair / np.abs(pair).max(1, keepdims=True))
        pair /= np.linalg.norm(pair, axis=1, keepdims=True)
        cosines.append(round(float(pair[0] @ pair[1]), 6))
    return 100 * spearmanr(cosines, [float(score) for score in scores])[0]


def test_models_are_compared_with_the_first(task_folder: Path, data: Path, tmp_path: Path) -> None:
    model, document = task_folder / "model", tmp_path / "vectors.md"
    first, second = run(
        model, model, "--data", data, "--rounds", 1, "--document", document, "--name", "toy"
    )
    assert first["sts-b"] == pytest.approx(expected_spearman(model, data, 32, "float32"))
    low, high = first["sts-b_interval"]  # type: ignore[misc]
    assert low <= first["sts-b"] <= high
    assert second["sick_points"] == 0
    assert second["sick_percent"] == pytest.approx(100)
    assert second["relative_speed"] > 0  # type: ignore[operator]
    assert "bench vectors toy" in document.read_text()


def test_dimensions_and_bits(task_folder: Path, data: Path) -> None:
    model = task_folder / "model"
    options = "--data", data, "--sizes", "--dimensions", "32,8", "--num-queries", 5
    rows = run(model, *options)
    assert [(row["dimensions"], row["type"], row["bytes"]) for row in rows] == [
        (32, "float32", 128),
        (32, "int8", 32),
        (32, "binary", 4),
        (8, "float32", 32),
        (8, "int8", 8),
        (8, "binary", 1),
    ]
    for row in rows:
        expected = expected_spearman(model, data, row["dimensions"], row["type"])  # type: ignore[arg-type]
        assert row["sts-b"] == pytest.approx(expected)
        assert 0 <= row["ndcg@10"] <= 1  # type: ignore[operator]


def test_truncated_vectors_are_the_first_dimensions_scaled_again() -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 10)).astype(np.float32)
    truncated = compress(vectors, 6, "float32")
    expected = vectors[:, :6] / np.linalg.norm(vectors[:, :6], axis=1, keepdims=True)
    np.testing.assert_allclose(truncated, expected, rtol=1e-6)
    assert compress(vectors, 6, "binary").tolist() == np.sign(vectors[:, :6]).tolist()
