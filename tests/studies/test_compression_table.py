"""What is counted of the models of the table: the exact numbers of compression."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.bench.artefacts.comparing import Artefact
from bertwright.cli.application import app
from bertwright.compression.surgery import Kept
from bertwright.encoder.encoder import Encoder
from bertwright.interop.loading import load
from bertwright.recipes import Recipe
from bertwright.studies.compression_table import timing
from bertwright.studies.compression_table.page import rows, write_table
from bertwright.studies.compression_table.published import BASE, bare, published, size_of
from bertwright.studies.compression_table.timing import file_of, time_all

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

FEWER_OPERATIONS = {
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
"""For a place in rows of 128, against bert-base."""


@cache
def counted() -> dict[str, dict[str, object]]:
    return {str(row["model"]): row for row in rows(None)}


def of(name: str) -> dict[str, object]:
    return counted()[name]


@pytest.mark.parametrize(("name", "millions"), MILLIONS.items())
def test_models_of_the_table_have_so_many_parameters(name: str, millions: float) -> None:
    assert of(name)["parameters"] == pytest.approx(millions, abs=0.006)


@pytest.mark.parametrize(("words", "fewer"), FEWER_OPERATIONS.items())
def test_so_many_times_fewer_operations(words: str, fewer: float) -> None:
    found = size_of(BASE).operations / size_of(words.split()).operations
    assert found == pytest.approx(fewer, rel=3e-3)


def test_operations_of_bert_base_and_of_mobilebert() -> None:
    assert size_of(BASE).operations == pytest.approx(174.6e6, rel=1e-3)
    mobile = bare(["mobilebert-base"], pooler=False).encoder
    # The published comparison leaves out what makes vectors of three pieces.
    entering = mobile.embeddings.operations(mobile.entry_width)
    own = size_of(["mobilebert-base"], pooler=False).operations - entering
    assert size_of(BASE).operations / own == pytest.approx(4.19, rel=2e-3)


def test_what_the_check_column_says() -> None:
    """Parameters do not give DistilBERT's 2.5, bits give Q-BERT's 13 for blocks alone."""
    assert of("DistilBERT")["fewer"] == pytest.approx(1.65, abs=0.005)
    assert of("DistilBERT")["retained"] == pytest.approx(96.9, abs=0.05)
    assert of("BERT6-PKD")["fewer"] == pytest.approx(1.64, abs=0.005)
    assert of("BERT3-PKD")["fewer"] == pytest.approx(2.40, abs=0.005)
    assert of("BERT-48")["fewer"] == pytest.approx(182, abs=1)
    assert of("TinyBERT4")["fewer"] == pytest.approx(7.63, abs=0.005)
    assert of("MobileBERT")["fewer"] == pytest.approx(4.45, abs=0.006)
    assert of("Q-BERT")["smaller"] == pytest.approx(8.7, abs=0.05)
    assert of("Q8BERT")["smaller"] == pytest.approx(4.0)
    assert of("BERT-of-Theseus")["retained"] == pytest.approx(98.6, abs=0.05)
    assert of("ALBERT-base")["retained"] == pytest.approx(97.0, abs=0.05)
    for name, efficiency in (("TinyBERT4", 0.52), ("MobileBERT", 0.96), ("BERT6-PKD", 0.95)):
        assert of(name)["efficiency"] == pytest.approx(efficiency, abs=0.006)
    assert "parameters" not in of("BiLSTM")


def number(encoder: Encoder, part: str) -> int:
    return sum(p.numel() for name, p in encoder.named_parameters() if part in name)


def on_meta(recipe: Recipe, kept: Kept | None = None) -> Encoder:
    with torch.device("meta"):
        return Encoder(recipe.encoder if kept is None else kept.cut(recipe.encoder), 30_522)


@pytest.mark.parametrize(
    ("name", "attention", "feed_forward"),
    [("bert-base", 2_363_904, 4_723_968), ("bert-large", 4_200_448, 8_395_776)],
)
def test_a_layer_has_so_many_parameters(name: str, attention: int, feed_forward: int) -> None:
    block = on_meta(Recipe.load(name)).blocks[1]
    sizes = {"attention": 0, "feed_forward": 0}
    for own, parameter in block.named_parameters():
        (part,) = (part for part in sizes if part in own)
        sizes[part] += parameter.numel()
    assert sizes == {"attention": attention, "feed_forward": feed_forward}


def test_what_a_head_and_a_unit_take_with_them() -> None:
    recipe = Recipe.load("bert-base")
    whole = number(on_meta(recipe), "")
    heads = Kept(heads=[range(11), *[range(12)] * 11])
    assert whole - number(on_meta(recipe, heads), "") == 196_800 == 3 * 64 * 769 + 64 * 768
    units = Kept(units=[range(3071), *[range(3072)] * 11])
    assert whole - number(on_meta(recipe, units), "") == 1_537


@pytest.mark.parametrize(
    ("kept", "saved"),
    [(Kept(heads=[range(6)] * 12), 0.176), (Kept(units=[range(1536)] * 12), 0.324)],
)
def test_half_of_the_heads_and_half_of_the_units_save_so_much(kept: Kept, saved: float) -> None:
    """Counted as products with weights and within rows of 128 places."""
    recipe = Recipe.load("bert-base")
    whole, left = (
        sum(p.numel() for n, p in on_meta(recipe, k).blocks.named_parameters() if p.dim() == 2)
        for k in (None, kept)
    )
    width, length, heads = 768, 128, 12 if kept.heads is None else 6
    within = [2 * length * width * 12, 2 * length * width * heads]
    found = 1 - (left + within[1]) / (whole + within[0])
    assert found == pytest.approx(saved, abs=1e-3)


def test_rows_say_where_they_are_from_and_come_in_order() -> None:
    numbers = [int(row.id[1:]) for row in published()]
    assert all(first <= second for first, second in pairwise(numbers))
    assert all(row.source for row in published())


def test_a_speed_is_shown_where_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    six = next(row for row in published() if row.model == "BERT6-PKD")
    measured: list[str] = []

    def measure(row):
        measured.append(row.model)
        return {"seconds_of_base": [2.0, 2.2, 1.9], "seconds": [1.0, 1.1, 0.95]}

    monkeypatch.setattr(timing, "_measured", measure)
    for _ in range(2):
        time_all([six], tmp_path, lambda line: None)
    assert measured == ["BERT6-PKD"]
    assert file_of(six.recipe, tmp_path).is_file()
    found = {row["model"]: row for row in rows(tmp_path)}
    # The same recipe, whatever it was taught by.
    for name in ("BERT6-PKD", "PD", "BERT-of-Theseus"):
        assert str(found[name]["measured"]).startswith("2 [")
        assert found[name]["efficiency_here"] == pytest.approx(1.0)
    assert "measured" not in found["BERT3-PKD"]
    write_table(list(found.values()), tmp_path / "small.md")
    assert "times faster here" in (tmp_path / "small.md").read_text()


def test_the_table_from_a_shell() -> None:
    result = CliRunner().invoke(app, ["compress", "--table", "--json"])
    told = json.loads(result.stdout)["rows"]
    assert [row["model"] for row in told] == [row.model for row in published()]


def test_a_small_encoder_is_timed_against_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = ("bert-tiny", "text.tokenizer.size=100")
    monkeypatch.setattr(timing, "BASE", tiny)
    own = published()[1].model_copy(update={"recipe": (*tiny, "encoder.depth.layers=1")})

    def seconds(artefacts: list[Artefact], *_: object) -> list[list[float]]:
        """A second for each block of what can be loaded."""
        models = [load(artefact.folder) for artefact in artefacts]
        return [[float(len(model.net.encoder.blocks))] for model in models]

    monkeypatch.setattr(timing, "seconds_in_turns", seconds)
    time_all([own], tmp_path, lambda line: None)
    found = json.loads(file_of(own.recipe, tmp_path).read_text())
    assert (found["seconds_of_base"], found["seconds"]) == ([2.0], [1.0])
    assert "torch" in found["origin"]
