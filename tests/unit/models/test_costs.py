"""Parameters, exact and as published, and FLOPs against PyTorch's counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.models.costs import (
    flops_per_token,
    num_parameters_by_part,
    training_flops,
    training_hours,
)
from bertwright.recipes import Recipe
from experiments.system_info import num_parameters_of, read_system_info
from toy_recipes import SYSTEMS, VOCABULARY, published, toy, toy_batch

COUNTS = [
    pytest.param(system, count, id=f"{system}-{count.size}-{count.parameters}")
    for system in SYSTEMS
    for count in read_system_info(system).all_parameter_counts()
]


@pytest.mark.parametrize(("system", "count"), COUNTS)
def test_systems_have_exactly_the_known_parameters(system, count):
    assert num_parameters_of(system, count) == count.parameters


def test_the_backbone_of_mobilebert_equals_the_stock_class():
    masked = Recipe.load("mobilebert-base", "objectives.next-sentence=null")
    encoder = num_parameters_by_part(masked.model_copy(update={"objectives": {}, "pooler": True}))
    assert sum(encoder.values()) == 24_844_544


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        *(("bert-base", 110e6), ("roberta-base", 125e6), ("roberta-large", 355e6)),
        *(("longformer-char-base", 41e6), ("longformer-char-large", 102e6)),
    ],
)
def test_counts_are_within_one_percent_of_the_papers(name, stated):
    assert sum(num_parameters_by_part(Recipe.load(name)).values()) == pytest.approx(
        stated, rel=0.01
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_flops_equal_pytorchs_count(system):
    kernel = hasattr(published(system).encoder.mixer, "kernel")
    recipe = toy(system, *(["encoder.mixer.kernel=explicit"] if kernel else []))
    model = Model.build(recipe, VOCABULARY)
    length = recipe.assembly.length
    token_ids = torch.arange(length)[None]
    with FlopCounterMode(display=False) as counter:
        model(token_ids)
    flops = flops_per_token(recipe, len(recipe.phases) - 1, VOCABULARY)
    query_positions = sum(
        o.query_stream_fraction for o in recipe.objectives_of(len(recipe.phases) - 1).values()
    )
    expected = length * (flops.projections + flops.attention) / (1 + query_positions)
    positions = recipe.encoder.positions
    if positions.flops(32, length) != positions.flops(32, 2 * length):
        # Relative position vectors are projected once per block, whatever the batch.
        attention = model.encoder.blocks[0].sublayers["attention"]
        projection = getattr(attention.score_term, "projection", attention.projection)
        shared = 2 * projection.weight.numel() * (2 * length - 1)
        expected += shared * len(model.encoder.blocks)
    assert counter.get_total_flops() == pytest.approx(expected)


UNCOUNTED = {
    **dict.fromkeys(("awd-lstm", "awd-lstm-backward", "cove"), "PyTorch counts no fused LSTM"),
    "stacking": "the model has more blocks than run in its first phase",
}


@pytest.mark.parametrize("system", sorted(set(SYSTEMS) - set(UNCOUNTED)))
def test_all_flops_of_a_step_are_counted(system):
    recipe = toy(system, "encoder.dropout=0")
    model = Model.build(recipe, VOCABULARY)
    total = 0.0
    for turn, step in enumerate(recipe.objective_schedule(0)):
        batch = toy_batch(recipe, 0, turn=turn)
        with FlopCounterMode(display=False) as counter:
            model.losses(batch, step.objectives)
        total += step.fraction * counter.get_total_flops() / batch.token_ids.numel()
    flops = flops_per_token(recipe, 0, VOCABULARY).forward
    # The dense kernel includes padding as keys, ELECTRA computes its logits again to sample, and a
    # short sequence rounds the number of targets.
    assert flops == pytest.approx(total, rel=0.3)


def test_dilated_heads_cost_as_much_as_others():
    def attention_flops(*changes: str) -> float:
        recipe = Recipe.load("longformer-char-base", "encoder.positions=rotary", *changes)
        return flops_per_token(recipe).attention

    rule = "[causal, {{kind: windows, sizes: [64], dilations: [{}], dilated_heads: {}}}]"
    undilated, two_dilated, all_dilated = (
        attention_flops(f"encoder.visibility.rules={rule.format(*pattern)}")
        for pattern in ((1, 8), (4, 2), (4, 8))
    )
    # Dilation classes of 512 positions fill whole tiles, so nothing is wasted.
    assert undilated == two_dilated == all_dilated
    full = attention_flops("encoder.visibility=causal")
    assert undilated < 0.1 * full
    assert attention_flops() < 0.3 * full


def test_the_published_training_of_bert_base():
    recipe = Recipe.load("bert-base")
    by_phase = [flops_per_token(recipe, phase).training for phase in (0, 1)]
    expected = 1_000_000 * 256 * (0.9 * 128 * by_phase[0] + 0.1 * 512 * by_phase[1])
    assert training_flops(recipe) == pytest.approx(expected)


def test_hours_need_a_known_gpu_and_a_fraction():
    assert training_hours(312e12 * 3600, "a100", 0.5) == pytest.approx(2.0)
    with pytest.raises(UserError, match="did you mean 'a100'"):
        training_hours(1.0, "a10o", 0.5)
    with pytest.raises(UserError, match="between 0 and 1"):
        training_hours(1.0, "a100", 40)
