"""Parameters that are known exactly beside those of whole systems: backbones, heads and parts.

Every figure was found by building the stock class, or the authors' own module, without weights.
"""

import pytest
import torch

from bertwright.model import Model
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe

HEIGHTS, WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)
TURC = (
    (4_385_920, 9_591_040, 22_458_880, 38_603_520),
    (4_782_464, 11_170_560, 28_763_648, 52_779_264),
    (5_179_008, 12_750_080, 35_068_416, 66_955_008),
    (5_575_552, 14_329_600, 41_373_184, 81_130_752),
    (5_972_096, 15_909_120, 47_677_952, 95_306_496),
    (6_368_640, 17_488_640, 53_982_720, 109_482_240),
)
"""The grid of Turc et al. 2019: a line for each number of layers."""

WITH_POOLER = {
    **{
        f"bert-base encoder.depth.layers={layers} encoder.width={width}": number
        for layers, line in zip(HEIGHTS, TURC, strict=True)
        for width, number in zip(WIDTHS, line, strict=True)
    },
    "bert-large": 335_141_888,
    "bert-base text.tokenizer.size=28996": 108_310_272,
    "bert-base text.tokenizer.size=119547": 177_853_440,
    "bert-whole-words-large": 335_141_888,
    "spanbert-base": 108_310_272,
    "spanbert-large": 333_579_264,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "xlm-r-base": 278_043_648,
    "xlm-r-large": 559_890_432,
    "albert-base": 11_683_584,
    "albert-large": 17_683_968,
    "albert-xlarge": 58_724_864,
    "albert-xxlarge": 222_595_584,
    "albert-base encoder.depth.sharing=none": 89_650_176,
    "albert-base encoder.depth.sharing=attention": 63_647_232,
    "albert-base encoder.depth.sharing=feed-forward": 37_686_528,
    "albert-base encoder.depth.sharing=none encoder.embeddings.width=768": 109_081_344,
    "longformer-base": 124_645_632 + 2_752_512 + 21_261_312,
}

WITHOUT_POOLER = {
    "bert-base": 108_891_648,
    "albert-large encoder.depth.sharing=none encoder.embeddings.width=1024": 333_557_760,
    "electra-small": 13_483_008,
    "electra-base": 108_891_648,
    "electra-large": 334_092_288,
    "xlnet-base": 116_718_336,
    "xlnet-large": 360_268_800,
    "xlm-xnli": 248_976_384,
    "modernbert-base": 149_014_272,
    "modernbert-large": 394_781_696,
}

MASKED_ALONE = {
    "bert-tiny": 4_416_698,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "albert-base": 11_221_680,
    "albert-large": 16_795_824,
    "albert-xlarge": 54_821_040,
    "albert-xxlarge": 206_368_944,
}

XL = "transformer-xl-base encoder.embeddings.scaled=true"
BYTES = {
    f"{XL} text.tokenizer.size=204 encoder.width=1024 encoder.depth.layers=24 "
    "encoder.mixer.heads=8 encoder.feed_forward.width=3072": 277_231_820,
    f"{XL} text.tokenizer.size=27 encoder.width=512 encoder.depth.layers=12": 40_964_635,
}
"""Transformer-XL for enwik8 (the large one) and for text8."""


def recipe_of(words: str) -> Recipe:
    name, *changes = words.split()
    return Recipe.load(name, *changes)


@pytest.mark.parametrize(("words", "exact"), WITH_POOLER.items())
def test_backbones_with_a_pooler(words: str, exact: int) -> None:
    bare = recipe_of(words).model_copy(update={"objectives": {}, "pooler": True})
    assert sum(parameters_by_part(bare).values()) == exact


@pytest.mark.parametrize(("words", "exact"), WITHOUT_POOLER.items())
def test_backbones_without_one(words: str, exact: int) -> None:
    bare = recipe_of(words).model_copy(update={"objectives": {}})
    assert sum(parameters_by_part(bare).values()) == exact


@pytest.mark.parametrize(("words", "exact"), MASKED_ALONE.items())
def test_masked_language_models_alone(words: str, exact: int) -> None:
    recipe = recipe_of(words)
    asked = {"masked": recipe.objectives["masked"]}
    alone = recipe.model_copy(update={"objectives": asked})
    assert sum(parameters_by_part(alone).values()) == exact


@pytest.mark.parametrize(("words", "exact"), BYTES.items())
def test_transformer_xl_for_bytes_and_letters(words: str, exact: int) -> None:
    assert sum(parameters_by_part(recipe_of(words)).values()) == exact


def test_a_table_and_a_block_of_bert() -> None:
    parts = parameters_by_part(Recipe.load("bert-base"))
    assert parts["embeddings"] == 23_837_184
    assert parts["blocks"] == 12 * 7_087_872


@pytest.mark.parametrize(
    ("words", "own", "discriminator", "alone"),
    [
        ("electra-small", 647_162, 13_549_057, 4_620_026),
        ("electra-small objectives.generated.width=1", 9_573_818, 13_549_057, 13_546_682),
        ("electra-base", 9_903_418, 109_483_009, 33_740_602),
        ("electra-large", 19_512_378, 335_142_913, 51_295_290),
    ],
)
def test_both_networks_of_electra(words: str, own: int, discriminator: int, alone: int) -> None:
    """``own`` of the generator beside what it shares, and all of it where it stands ``alone``."""
    recipe = recipe_of(words)
    parts = parameters_by_part(recipe)
    assert parts["head_generated"] == own
    asked = {"replaced-token": recipe.objectives["replaced-token"]}
    answering = parameters_by_part(recipe.model_copy(update={"objectives": asked}))
    assert sum(answering.values()) == discriminator
    table, width = recipe.encoder.table_width, recipe.encoder.width
    projection = 0 if table == width else table * width + width
    assert own + parts["embeddings"] - projection == alone


def test_the_boundaries_of_spanbert_have_so_many_parameters() -> None:
    recipe = Recipe.load("spanbert-large", "objectives.span-boundary.longest=15")
    assert parameters_by_part(recipe)["head_span-boundary"] == 3_388_668


def test_what_elmo_reads_characters_with() -> None:
    with torch.device("meta"):
        encoder = Model(Recipe.load("elmo-base"), 793_471).encoder
    table = encoder.embeddings.pieces

    def number(part: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in part.parameters())

    parts = (table.characters, table.filters, table.highways, table.projection)
    assert [number(part) for part in parts] == [4_192, 199_168, 16_785_408, 1_049_088]
    ways = [way for block in encoder.blocks for way in block.sublayers["attention"].ways]
    assert [number(way) for way in ways] == [18_890_752] * 4
