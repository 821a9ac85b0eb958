"""Parameter counts of backbones, heads and parts that are known exactly.

Each was counted in the stock class, or the authors' module, built without weights.
"""

import pytest
import torch

from bertwright.models import Model
from bertwright.models.costs import num_parameters_by_part
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
    "bert-base text.tokenizer.vocab_size=28996": 108_310_272,
    "bert-base text.tokenizer.vocab_size=119547": 177_853_440,
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

MASKED_LM_ONLY = {
    "bert-tiny": 4_416_698,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "albert-base": 11_221_680,
    "albert-large": 16_795_824,
    "albert-xlarge": 54_821_040,
    "albert-xxlarge": 206_368_944,
}

XL = "transformer-xl-base encoder.embeddings.scaled=true"
CHARACTER_MODELS = {
    f"{XL} text.tokenizer.vocab_size=204 encoder.width=1024 encoder.depth.layers=24 "
    "encoder.mixer.heads=8 encoder.feed_forward.width=3072": 277_231_820,
    f"{XL} text.tokenizer.vocab_size=27 encoder.width=512 encoder.depth.layers=12": 40_964_635,
}
"""Transformer-XL for enwik8 (the large one) and for text8."""


def load_recipe(description: str) -> Recipe:
    name, *changes = description.split()
    return Recipe.load(name, *changes)


@pytest.mark.parametrize(("words", "exact"), WITH_POOLER.items())
def test_backbones_with_a_pooler(words: str, exact: int) -> None:
    bare = load_recipe(words).model_copy(update={"objectives": {}, "pooler": True})
    assert sum(num_parameters_by_part(bare).values()) == exact


@pytest.mark.parametrize(("words", "exact"), WITHOUT_POOLER.items())
def test_backbones_without_a_pooler(words: str, exact: int) -> None:
    bare = load_recipe(words).model_copy(update={"objectives": {}})
    assert sum(num_parameters_by_part(bare).values()) == exact


@pytest.mark.parametrize(("words", "exact"), MASKED_LM_ONLY.items())
def test_masked_language_models(words: str, exact: int) -> None:
    recipe = load_recipe(words)
    objectives = {"masked": recipe.objectives["masked"]}
    masked_lm = recipe.model_copy(update={"objectives": objectives})
    assert sum(num_parameters_by_part(masked_lm).values()) == exact


@pytest.mark.parametrize(("words", "exact"), CHARACTER_MODELS.items())
def test_transformer_xl_for_bytes_and_characters(words: str, exact: int) -> None:
    assert sum(num_parameters_by_part(load_recipe(words)).values()) == exact


def test_embeddings_and_blocks_of_bert() -> None:
    parts = num_parameters_by_part(Recipe.load("bert-base"))
    assert parts["embeddings"] == 23_837_184
    assert parts["blocks"] == 12 * 7_087_872


@pytest.mark.parametrize(
    ("words", "unshared", "discriminator", "generator"),
    [
        ("electra-small", 647_162, 13_549_057, 4_620_026),
        ("electra-small objectives.generated.width=1", 9_573_818, 13_549_057, 13_546_682),
        ("electra-base", 9_903_418, 109_483_009, 33_740_602),
        ("electra-large", 19_512_378, 335_142_913, 51_295_290),
    ],
)
def test_both_networks_of_electra(
    words: str, unshared: int, discriminator: int, generator: int
) -> None:
    """``unshared`` are the generator's parameters without the shared embeddings."""
    recipe = load_recipe(words)
    parts = num_parameters_by_part(recipe)
    assert parts["head_generated"] == unshared
    objectives = {"replaced-token": recipe.objectives["replaced-token"]}
    counts = num_parameters_by_part(recipe.model_copy(update={"objectives": objectives}))
    assert sum(counts.values()) == discriminator
    table, width = recipe.encoder.token_embedding_width, recipe.encoder.width
    projection = 0 if table == width else table * width + width
    assert unshared + parts["embeddings"] - projection == generator


def test_the_span_boundary_head_of_spanbert() -> None:
    recipe = Recipe.load("spanbert-large", "objectives.span-boundary.longest=15")
    assert num_parameters_by_part(recipe)["head_span-boundary"] == 3_388_668


def test_character_embeddings_and_layers_of_elmo() -> None:
    with torch.device("meta"):
        encoder = Model(Recipe.load("elmo-base"), 793_471).encoder
    table = encoder.embeddings.tokens

    def count(part: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in part.parameters())

    parts = (table.characters, table.filters, table.highways, table.projection)
    assert [count(part) for part in parts] == [4_192, 199_168, 16_785_408, 1_049_088]
    mixers = [block.sublayers["attention"] for block in encoder.blocks]
    layers = [layer for mixer in mixers for layer in mixer.direction_layers]
    assert [count(layer) for layer in layers] == [18_890_752] * 4
