"""An extended vocabulary is chosen on training text and compared on held-out text."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import vocabulary
from benchmarks.__main__ import app
from bertwright.data.holdout import HELDOUT, TRAIN
from bertwright.data.shards.dataset import Dataset
from bertwright.training.pretraining.pretrain import pretrain
from short_runs import shorten


def train_one_step(model: Path, data: Path, output: Path, seed: int, minutes: float) -> None:
    pretrain(
        None, data, output, overrides=[f"seed={seed}", "steps=1"], start_from=model, quiet=True
    )


def test_both_vocabularies_are_trained_and_compared(
    task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    monkeypatch.setattr(vocabulary, "train_arm", train_one_step)
    text, document = tmp_path / "news.txt", tmp_path / "vocabulary.md"
    text.write_text(
        "\n\n".join(f"{n} the old dogs see the olden days, and days." for n in range(99))
    )
    output = tmp_path / "out"
    command = ["vocabulary", str(task_folder / "model"), "--text", str(text), "-o", str(output)]
    command += ["--add", "3", "--seeds", "2", "--document", str(document), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    comparison = json.loads(result.stdout)
    before, after = comparison["results"]
    assert after["size"] == before["size"] + 3
    assert comparison["fewer_tokens"] > 0.1
    data = [Dataset.open(output / f"data-{arm}") for arm in vocabulary.ARMS]
    assert data[0].manifest.tokenizer.hash != data[1].manifest.tokenizer.hash
    stored = json.loads((output / "runs.json").read_text())
    assert len(stored) == 4
    assert {run["data_hash"] for run in stored.values()} == {d.manifest.hash for d in data}
    assert "Tokens per word fall by" in document.read_text()
    monkeypatch.setattr(vocabulary, "train_arm", None)  # finished runs are not repeated
    assert json.loads(CliRunner().invoke(app, command).stdout) == comparison


def test_the_splits_are_those_of_prepare(tmp_path: Path) -> None:
    text = tmp_path / "news.txt"
    text.write_text("\n\n".join(f"Document number {n}." for n in range(60)))
    plan = vocabulary.VocabularyPlan(tmp_path, [str(text)], 5, 1.0, 2)
    parts = [set(vocabulary.split_texts(plan, split)) for split in (TRAIN, HELDOUT)]
    assert len(parts[0] | parts[1]) == 60
    assert not parts[0] & parts[1]
    assert parts[1]
