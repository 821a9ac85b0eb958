"""The table of compressed models: counts and timing."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.compression.pruning.structured import Subnetwork
from bertwright.encoder.encoder import Encoder
from bertwright.interop.loading import load
from bertwright.recipes import Recipe
from bertwright.timing.artefacts import Artefact
from experiments.__main__ import app
from experiments.compression_table import timing
from experiments.compression_table.page import table_rows, write_table
from experiments.compression_table.published import BASE, bare_recipe, encoder_size, load_published
from experiments.compression_table.timing import time_all, timing_file

MILLIONS = {
    "DistilBERT": 66.36,
    "BERT6-PKD": 66.96,
    "BERT3-PKD": 45.69,
    "BERT-48": 0.60,
    "BERT-192": 6.42,
    "TinyBERT4": 14.35,
    "MobileBERT": 24.58,
    "PD": 66.96,
    "ALBERT-base": 11.68,
    "ALBERT-xxlarge": 222.60,
}

TIMES_FEWER_FLOPS = {
    "bert-large": 0.283,
    "bert-medium": 3.33,
    "bert-small": 6.66,
    "bert-mini": 25.6,
    "bert-tiny": 190.0,
    "bert-base encoder.depth.layers=6": 2.00,
    "bert-base encoder.depth.layers=3": 4.00,
    "bert-base encoder.depth.layers=4 encoder.width=312 encoder.mixer.head_width=26 "
    "encoder.feed_forward.width=1200": 17.9,
}
"""FLOPs of bert-base over those of the recipe, per token in sequences of 128."""


@cache
def rows_by_model() -> dict[str, dict[str, object]]:
    return {str(row["model"]): row for row in table_rows(None)}


@pytest.mark.parametrize(("name", "millions"), MILLIONS.items())
def test_numbers_of_parameters(name: str, millions: float) -> None:
    assert rows_by_model()[name]["parameters"] == pytest.approx(millions, abs=0.006)


@pytest.mark.parametrize(("words", "ratio"), TIMES_FEWER_FLOPS.items())
def test_flops_against_bert_base(words: str, ratio: float) -> None:
    measured = encoder_size(BASE).flops / encoder_size(words.split()).flops
    assert measured == pytest.approx(ratio, rel=3e-3)


def test_flops_of_bert_base_and_of_mobilebert() -> None:
    assert encoder_size(BASE).flops == pytest.approx(174.6e6, rel=1e-3)
    mobile = bare_recipe(["mobilebert-base"], pooler=False).encoder
    # The published comparison leaves out the trigram embeddings.
    embeddings = mobile.embeddings.flops(mobile.embeddings_width)
    flops = encoder_size(["mobilebert-base"], pooler=False).flops - embeddings
    assert encoder_size(BASE).flops / flops == pytest.approx(4.19, rel=2e-3)


def test_counts_agree_with_the_publications() -> None:
    """Parameters do not give DistilBERT's 2.5; bits give Q-BERT's 13 for blocks alone."""
    expected = {
        ("DistilBERT", "fewer"): pytest.approx(1.65, abs=0.005),
        ("DistilBERT", "retained"): pytest.approx(96.9, abs=0.05),
        ("BERT6-PKD", "fewer"): pytest.approx(1.64, abs=0.005),
        ("BERT3-PKD", "fewer"): pytest.approx(2.40, abs=0.005),
        ("BERT-48", "fewer"): pytest.approx(182, abs=1),
        ("TinyBERT4", "fewer"): pytest.approx(7.63, abs=0.005),
        ("MobileBERT", "fewer"): pytest.approx(4.45, abs=0.006),
        ("Q-BERT", "smaller"): pytest.approx(8.7, abs=0.05),
        ("Q8BERT", "smaller"): pytest.approx(4.0),
        ("BERT-of-Theseus", "retained"): pytest.approx(98.6, abs=0.05),
        ("ALBERT-base", "retained"): pytest.approx(97.0, abs=0.05),
        ("TinyBERT4", "efficiency"): pytest.approx(0.52, abs=0.006),
        ("MobileBERT", "efficiency"): pytest.approx(0.96, abs=0.006),
        ("BERT6-PKD", "efficiency"): pytest.approx(0.95, abs=0.006),
    }
    rows = rows_by_model()
    assert {(model, key): rows[model][key] for model, key in expected} == expected
    assert "parameters" not in rows["BiLSTM"]


def num_parameters(encoder: Encoder) -> int:
    return sum(p.numel() for p in encoder.parameters())


def on_meta(recipe: Recipe, subnetwork: Subnetwork | None = None) -> Encoder:
    config = recipe.encoder if subnetwork is None else subnetwork.prune_config(recipe.encoder)
    with torch.device("meta"):
        return Encoder(config, 30_522)


@pytest.mark.parametrize(
    ("name", "attention", "feed_forward"),
    [("bert-base", 2_363_904, 4_723_968), ("bert-large", 4_200_448, 8_395_776)],
)
def test_parameters_of_a_layer(name: str, attention: int, feed_forward: int) -> None:
    block = on_meta(Recipe.load(name)).blocks[1]
    sizes = {"attention": 0, "feed_forward": 0}
    for parameter_name, parameter in block.named_parameters():
        (part,) = (part for part in sizes if part in parameter_name)
        sizes[part] += parameter.numel()
    assert sizes == {"attention": attention, "feed_forward": feed_forward}


def test_parameters_of_a_head_and_a_unit() -> None:
    recipe = Recipe.load("bert-base")
    total = num_parameters(on_meta(recipe))
    heads = Subnetwork(heads=[range(11), *[range(12)] * 11])
    assert total - num_parameters(on_meta(recipe, heads)) == 196_800 == 3 * 64 * 769 + 64 * 768
    units = Subnetwork(units=[range(3071), *[range(3072)] * 11])
    assert total - num_parameters(on_meta(recipe, units)) == 1_537


@pytest.mark.parametrize(
    ("subnetwork", "saved"),
    [(Subnetwork(heads=[range(6)] * 12), 0.176), (Subnetwork(units=[range(1536)] * 12), 0.324)],
)
def test_flops_saved_by_half_of_the_heads_or_units(subnetwork: Subnetwork, saved: float) -> None:
    """FLOPs are products with weights, and attention in sequences of 128 tokens."""
    recipe = Recipe.load("bert-base")
    weights, pruned_weights = (
        sum(p.numel() for p in on_meta(recipe, s).blocks.parameters() if p.dim() == 2)
        for s in (None, subnetwork)
    )
    width, length, heads = 768, 128, 12 if subnetwork.heads is None else 6
    attention, pruned_attention = (2 * length * width * n for n in (12, heads))
    remaining = (pruned_weights + pruned_attention) / (weights + attention)
    assert 1 - remaining == pytest.approx(saved, abs=1e-3)


def test_published_models_are_in_order_and_have_sources() -> None:
    numbers = [int(model.id[1:]) for model in load_published()]
    assert all(first <= second for first, second in pairwise(numbers))
    assert all(model.source for model in load_published())


def test_measured_speed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pkd = next(model for model in load_published() if model.model == "BERT6-PKD")
    timed: list[str] = []

    def measure(model):
        timed.append(model.model)
        return {"seconds_of_base": [2.0, 2.2, 1.9], "seconds": [1.0, 1.1, 0.95]}

    monkeypatch.setattr(timing, "_measure", measure)
    for _ in range(2):
        time_all([pkd], tmp_path, lambda line: None)
    assert timed == ["BERT6-PKD"]
    assert timing_file(pkd.recipe, tmp_path).is_file()
    rows = {row["model"]: row for row in table_rows(tmp_path)}
    # They have the same recipe, and differ in their training.
    for name in ("BERT6-PKD", "PD", "BERT-of-Theseus"):
        assert str(rows[name]["measured"]).startswith("2 [")
        assert rows[name]["efficiency_here"] == pytest.approx(1.0)
    assert "measured" not in rows["BERT3-PKD"]
    write_table(list(rows.values()), tmp_path / "small.md")
    assert "times faster here" in (tmp_path / "small.md").read_text()


def test_command_line() -> None:
    result = CliRunner().invoke(app, ["compression-table", "--json"])
    rows = json.loads(result.stdout)["rows"]
    assert [row["model"] for row in rows] == [model.model for model in load_published()]


def test_encoders_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = ("bert-tiny", "text.tokenizer.vocab_size=100")
    monkeypatch.setattr(timing, "BASE", tiny)
    recipe = (*tiny, "encoder.depth.layers=1")
    model = load_published()[1].model_copy(update={"recipe": recipe})

    def seconds(artefacts: list[Artefact], *_: object) -> list[list[float]]:
        """Return one second for each block."""
        models = [load(artefact.folder) for artefact in artefacts]
        return [[float(len(model.task_model.encoder.blocks))] for model in models]

    monkeypatch.setattr(timing, "interleaved_seconds", seconds)
    time_all([model], tmp_path, lambda line: None)
    times = json.loads(timing_file(recipe, tmp_path).read_text())
    assert (times["seconds_of_base"], times["seconds"]) == ([2.0], [1.0])
    assert "torch" in times["provenance"]
