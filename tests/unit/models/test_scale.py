"""The memory of a sharded run and the size of text, against independent counts."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.costs import num_parameters_by_part, training_memory_bytes
from bertwright.models.scale import sharded_memory, text_scale
from bertwright.recipes import Recipe
from small_text import stories


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return Recipe.load("bert-base", "precision=bf16", "optimiser={kind: adamw}")


def test_parts_are_divided_and_the_rest_is_not(recipe: Recipe) -> None:
    one, eight = sharded_memory(recipe, 1), sharded_memory(recipe, 8)
    num_parameters = sum(num_parameters_by_part(recipe).values())
    assert one.parameters == 6 * num_parameters
    assert one.gradients == 4 * num_parameters
    # Two moments; parameters are aligned in the buffers.
    assert one.optimiser == pytest.approx(8 * num_parameters, rel=1e-3)
    for part in ("parameters", "gradients", "optimiser"):
        assert getattr(eight, part) == getattr(one, part) / 8
    assert (eight.gathered, eight.activations) == (one.gathered, one.activations)
    unsharded = training_memory_bytes(recipe) - 16 * num_parameters
    assert one.activations == unsharded
    block = 12 * 768**2 + 13 * 768  # Vaswani et al. 2017, with biases and two norms
    assert eight.gathered == 2 * (2 * (num_parameters - 12 * block) + 3 * block)


def test_shared_blocks_are_gathered_for_the_whole_step() -> None:
    albert = Recipe.load("albert-base", "precision=bf16")
    num_parameters = sum(num_parameters_by_part(albert).values())
    assert sharded_memory(albert, 8).gathered == 4 * num_parameters


def test_muon_keeps_a_moment_and_a_bf16_direction_of_each_matrix(recipe: Recipe) -> None:
    muon = Recipe.load("bert-base", "precision=bf16", "optimiser={kind: muon}")
    matrices = 12 * 12 * 768**2 + 3 * 768**2  # of blocks, the pooler and the heads
    adamw = sharded_memory(recipe, 1).optimiser
    others = sharded_memory(muon, 1).optimiser
    assert adamw - others == pytest.approx((8 - 4 - 2) * matrices, rel=0.01)


def test_text_grows_in_proportion(tmp_path: Path) -> None:
    config = TokenizerConfig.parse({"kind": "wordpiece", "vocab_size": 300})
    (tmp_path / "text.txt").write_text("\n\n".join(stories(20)))
    tokenizer = train_tokenizer(stories(20), config)
    sample = prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer, num_workers=1)
    num_bytes = sample.report["bytes"]
    scale = text_scale(sample, 1000 * num_bytes, megabytes_per_second=num_bytes / 1e6)
    assert scale["tokens"] == pytest.approx(1000 * sample.report["tokens"])
    assert scale["preparation_hours"] == pytest.approx(1000 / 3600)
    files = [path for path in sample.path.iterdir() if path.name in sample.manifest.files]
    size = sum(path.stat().st_size for path in files)
    assert scale["prepared_bytes"] == pytest.approx(1000 * size)
    options = ["--devices", "8", "--data", str(sample.path), "--text-gigabytes", "1", "--json"]
    result = CliRunner().invoke(app, ["count", "bert-base", *options])
    counted = json.loads(result.stdout)
    assert counted["text"]["tokens"] == pytest.approx(sample.report["tokens"] * 1e9 / num_bytes)
    parts = dict(counted["memory_per_device"])
    assert parts.pop("total") == pytest.approx(sum(parts.values()))
    alone = json.loads(CliRunner().invoke(app, ["count", "bert-base", "--json"]).stdout)
    hours = alone["published_training"]["hours"]
    assert counted["published_training"]["hours"] == pytest.approx(hours / 8)


def test_sizes_need_text(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["count", "bert-base", "--text-gigabytes", "1"])
    assert isinstance(result.exception, UserError)
    assert "--text-gigabytes and --data belong together" in str(result.exception)
    for amount in ("0", "-1", "nan", "inf"):
        words = ["count", "bert-base", "--text-gigabytes", amount, "--data", str(tmp_path)]
        result = CliRunner().invoke(app, words)
        assert "an amount of text is more than 0" in str(result.exception)
