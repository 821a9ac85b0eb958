"""Packed batches: losses of padded ones, fewer positions, and times of all kinds."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import packing
from benchmarks.__main__ import app
from bertwright.testing.toy import toy_text_model
from small_tasks import TEXTS, classes


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of a toy encoder and of a task with texts of very different lengths."""
    model, data = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("data")
    toy_text_model(TEXTS).save(model)
    for split in ("train", "dev"):
        lines = [
            f"{' '.join(e.text.split()[: 1 + n % 8])}\t{int(e.label == 'old')}\n"
            for n, e in enumerate(classes())
        ]
        (data / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines), encoding="utf-8")
    return model, data


def run(tmp_path: Path, folders: tuple[Path, Path], *options: str) -> tuple[dict[str, Any], str]:
    document = tmp_path / "results.md"
    words = ["packing", str(folders[0]), "--data", str(folders[1]), "--batch-sizes", "16", *options]
    result = CliRunner().invoke(app, [*words, "--json", "--document", str(document)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["results"][0], document.read_text(encoding="utf-8")


def test_packed_batches_have_equal_losses_and_less_padding(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [[3.0], [1.0], [2.0]]
    monkeypatch.setattr(packing, "time_processes", lambda *_: seconds)
    row, document = run(tmp_path, folders)
    assert row["loss_difference"] < 1e-5
    assert row["packed_fill"] > 1.2 * row["padded_fill"]
    times = dict(zip(packing.BATCHINGS, (3.0, 1.0, 2.0), strict=True))
    assert row["against_padded"] == times["padded"] / times["packed"]
    assert "bench packing" in document


def test_scores_are_compared_over_seeds(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    row, document = run(tmp_path, folders, "--seeds", "2", "--epochs", "0")
    assert row["seeds"] == 2
    # Untrained heads do not depend on the batches.
    assert row["packed"] == row["padded"] == row["buckets"]
    assert "bench packing scores" in document
