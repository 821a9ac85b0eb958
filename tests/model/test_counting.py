"""Counts: exact, and those that the papers state; arithmetic against PyTorch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.counting import arithmetic, counted, parameters_by_part, training_arithmetic
from bertwright.model.hardware import hours
from bertwright.recipes import Recipe
from bertwright.recipes.about import about
from recipes_at_toy_size import SYSTEMS, VOCABULARY, published, toy, toy_batch

COUNTS = [
    pytest.param(system, count, id=f"{system}-{count.size}-{count.parameters}")
    for system in SYSTEMS
    for count in about(system).all_counts()
]


@pytest.mark.parametrize(("system", "count"), COUNTS)
def test_systems_have_exactly_the_parameters_that_are_known(system, count):
    assert counted(system, count) == count.parameters


def test_the_backbone_of_mobilebert_is_that_of_the_stock_class():
    masked = Recipe.load("mobilebert-base", "objectives.next-sentence=null")
    encoder = parameters_by_part(masked.model_copy(update={"objectives": {}, "pooler": True}))
    assert sum(encoder.values()) == 24_844_544


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        *(("bert-base", 110e6), ("roberta-base", 125e6), ("roberta-large", 355e6)),
        *(("longformer-char-base", 41e6), ("longformer-char-large", 102e6)),
    ],
)
def test_papers_state_them_within_one_percent(name, stated):
    assert sum(parameters_by_part(Recipe.load(name)).values()) == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("system", SYSTEMS)
def test_arithmetic_is_what_pytorch_counts(system):
    kernel = hasattr(published(system).encoder.mixer, "kernel")
    recipe = toy(system, *(["encoder.mixer.kernel=explicit"] if kernel else []))
    model = Model.build(recipe, VOCABULARY)
    length = recipe.assembly.length
    pieces = torch.arange(length)[None]
    with FlopCounterMode(display=False) as counter:
        model(pieces)
    counted = arithmetic(recipe, len(recipe.phases) - 1, VOCABULARY)
    added = sum(o.added_places for o in recipe.objectives_of(len(recipe.phases) - 1).values())
    expected = length * (counted.width + counted.length) / (1 + added)
    positions = recipe.encoder.positions
    if positions.operations(32, length) != positions.operations(32, 2 * length):
        # The vectors of distances are projected once in every block, whatever the rows.
        attention = model.encoder.blocks[0].sublayers["attention"]
        projection = getattr(attention.term, "projection", attention.projection)
        shared = 2 * projection.weight.numel() * (2 * length - 1)
        expected += shared * len(model.encoder.blocks)
    assert counter.get_total_flops() == pytest.approx(expected)


@pytest.mark.parametrize("system", ["electra", "spanbert", "xlnet"])
def test_all_that_a_step_computes_is_counted(system):
    recipe = toy(system, "encoder.mixer.kernel=explicit", "encoder.dropout=0")
    model = Model.build(recipe, VOCABULARY)
    batch = toy_batch(recipe, 0)
    with FlopCounterMode(display=False) as counter:
        model.losses(batch, recipe.objectives)
    counted = arithmetic(recipe, 0, VOCABULARY).forward * batch.pieces.numel()
    # The dense kernel meets the places behind a text as keys too, ELECTRA names its guesses again
    # to draw them, and a row of a few places asks for a whole number of them.
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.3)


def test_heads_with_gaps_cost_what_others_of_their_window_do():
    def attended(*changes: str) -> float:
        recipe = Recipe.load("longformer-char-base", "encoder.positions=rotary", *changes)
        return arithmetic(recipe).length

    rules = "[causal, {{kind: windows, sizes: [64], dilations: [{}], dilated_heads: {}}}]"
    plain, some, every = (
        attended(f"encoder.visibility.rules={rules.format(*own)}")
        for own in ((1, 8), (4, 2), (4, 8))
    )
    # Classes of 512 places fill whole tiles, so that nothing is wasted between them.
    assert plain == some == every
    whole = attended("encoder.visibility=causal")
    assert plain < 0.1 * whole
    assert attended() < 0.3 * whole


def test_the_published_training_of_bert_base_costs_what_its_steps_say():
    recipe = Recipe.load("bert-base")
    by_phase = [arithmetic(recipe, phase).training for phase in (0, 1)]
    expected = 1_000_000 * 256 * (0.9 * 128 * by_phase[0] + 0.1 * 512 * by_phase[1])
    assert training_arithmetic(recipe) == pytest.approx(expected)


def test_hours_need_a_known_card_and_a_share():
    assert hours(312e12 * 3600, "a100", 0.5) == pytest.approx(2.0)
    with pytest.raises(UserError, match="did you mean 'a100'"):
        hours(1.0, "a10o", 0.5)
    with pytest.raises(UserError, match="between 0 and 1"):
        hours(1.0, "a100", 40)
