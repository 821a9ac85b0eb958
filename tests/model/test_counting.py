"""Counts: exact, and those that the papers state; arithmetic against PyTorch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.counting import arithmetic, parameters_by_part, training_arithmetic
from bertwright.model.hardware import hours
from bertwright.recipes import Recipe
from recipes_at_toy_size import SYSTEMS, VOCABULARY, toy


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("bert-tiny", 4_433_468),
        ("bert-mini", 11_267_900),
        ("bert-small", 29_058_876),
        ("bert-medium", 41_668_412),
        ("bert-base", 110_106_428),
        ("bert-large", 336_226_108),
        ("roberta-base", 124_697_433),
        ("roberta-large", 355_412_057),
        ("bert-whole-words-large", 336_226_108),
        ("structbert-base", 110_107_197),
        ("gpt-base", 116_534_784),
        ("gpt-2-base", 124_439_808),
        ("gpt-2-medium", 354_823_168),
        ("gpt-2-large", 774_030_080),
        ("gpt-2-xl", 1_557_611_200),
        ("albert-base", 11_813_810),
        ("albert-large", 17_847_474),
        ("albert-xlarge", 59_021_490),
        ("albert-xxlarge", 223_158_450),
        ("modernbert-base", 149_655_232),
        ("modernbert-large", 395_881_664),
        ("sandwich-base", 124_439_808),
        ("xlnet-base", 116_750_336),
        ("xlnet-large", 360_300_800),
        ("longformer-base", 148_711_257),
        ("longformer-large", 434_653_273),
        ("bigbird-base", 127_520_694),
        ("electra-small", 14_196_219),
        ("electra-base", 119_386_427),
        ("electra-large", 354_655_291),
    ],
)
def test_published_models_have_exactly_their_parameters(name, exact):
    assert sum(parameters_by_part(Recipe.load(name)).values()) == exact


def test_blocks_of_the_stock_reformer_have_exactly_their_parameters():
    sizes = ("width=256", "mixer.heads=12", "feed_forward.expansion=2", "depth.layers=3")
    parts = parameters_by_part(Recipe.load("reformer", *(f"encoder.{size}" for size in sizes)))
    assert parts["blocks"] == 3 * 853_760
    assert parts["embeddings"] == 50_257 * 256 + 64 * 64 + 64 * 192


def test_stock_classes_of_long_rows_have_a_pooler_more():
    backbones = {"longformer-base": 148_659_456, "longformer-large": 434_600_960}
    for name, exact in {**backbones, "bigbird-base": 127_468_800}.items():
        parts = parameters_by_part(Recipe.load(name, "pooler=true"))
        assert parts["embeddings"] + parts["blocks"] + parts["pooler"] == exact
    assert (
        sum(parameters_by_part(Recipe.load("bigbird-base", "pooler=true")).values()) == 128_111_286
    )


ALBERT_TABLE = {
    "none": (87_057_408, 89_059_584, 93_063_936, 108_490_752),
    "attention": (61_054_464, 63_056_640, 67_060_992, 82_487_808),
    "feed-forward": (35_093_760, 37_095_936, 41_100_288, 56_527_104),
    "all": (9_090_816, 11_092_992, 15_097_344, 30_524_160),
}
"""Lan et al. 2020, table 4: what is shared, and the parameters without pooler and heads at tables
of 64, 128, 256 and 768. The paper counts the pooler in, except in the rows that share nothing."""


@pytest.mark.parametrize("sharing", ALBERT_TABLE)
def test_the_sharing_table_of_albert_is_exact(sharing):
    for width, exact in zip((64, 128, 256, 768), ALBERT_TABLE[sharing], strict=True):
        overrides = f"encoder.depth.sharing={sharing}", f"encoder.embeddings.width={width}"
        parts = parameters_by_part(Recipe.load("albert-base", *overrides))
        assert parts["embeddings"] + parts["blocks"] == exact


def test_transformer_xl_for_enwik8_has_exactly_its_parameters():
    changes = ("encoder.width=512", "encoder.depth.layers=12", "text.tokenizer.size=204")
    parts = parameters_by_part(Recipe.load("transformer-xl", *changes))
    assert sum(parts.values()) == 41_055_436


def test_a_generator_as_wide_as_the_encoder_shares_its_tables():
    recipe = Recipe.load("electra-small", "objectives.generated.width=1")
    assert sum(parameters_by_part(recipe).values()) == 23_122_875


@pytest.mark.parametrize(
    ("name", "stated"),
    [("bert-base", 110e6), ("roberta-base", 125e6), ("roberta-large", 355e6)],
)
def test_papers_state_them_within_one_percent(name, stated):
    assert sum(parameters_by_part(Recipe.load(name)).values()) == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("system", SYSTEMS)
def test_arithmetic_is_what_pytorch_counts(system):
    kernel = hasattr(Recipe.load(system).encoder.mixer, "kernel")
    recipe = toy(system, *(["encoder.mixer.kernel=explicit"] if kernel else []))
    model = Model.build(recipe, VOCABULARY)
    length = recipe.assembly.length
    pieces = torch.zeros(2, length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(pieces)
    counted = arithmetic(recipe, len(recipe.phases) - 1, VOCABULARY)
    expected = 2 * length * (counted.width + counted.length)
    if recipe.encoder.positions.operations(32, length):
        # The vectors of distances are projected once in every block, whatever the rows.
        shared = 2 * 32**2 * (2 * length - 1) * len(model.encoder.blocks)
        expected += shared
    assert counter.get_total_flops() == pytest.approx(expected)


def test_the_published_training_of_bert_base_costs_what_its_steps_say():
    recipe = Recipe.load("bert-base")
    by_phase = [arithmetic(recipe, phase).training for phase in (0, 1)]
    expected = 1_000_000 * 131_072 * (0.9 * by_phase[0] + 0.1 * by_phase[1])
    assert training_arithmetic(recipe) == pytest.approx(expected)


def test_hours_need_a_known_card_and_a_share():
    assert hours(312e12 * 3600, "a100", 0.5) == pytest.approx(2.0)
    with pytest.raises(UserError, match="did you mean 'a100'"):
        hours(1.0, "a10o", 0.5)
    with pytest.raises(UserError, match="between 0 and 1"):
        hours(1.0, "a100", 40)
