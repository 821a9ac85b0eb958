"""A structurally pruned model is the original with heads and units gated to 0."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.analysis.core.interventions import gate_heads, open_gates
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.analysis.heads.head_importance import head_importances
from bertwright.compression.pruning.importance import first_subnetwork, select_most_important
from bertwright.compression.pruning.structured import (
    Subnetwork,
    largest_units,
    prune_model,
    prune_weights,
)
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models import Model
from bertwright.models.saving import load_model, save_model
from bertwright.models.text_model import TextModel
from experiments.analyses.models import small_inputs
from toy_recipes import VOCABULARY, shaken, toy

HEADS = ((1,), (0,))
UNITS = ((0, 3, 4), (2, 5))


def config_and_encoder(system: str, *changes: str) -> tuple[EncoderConfig, Encoder]:
    recipe = toy(system, *changes)
    return recipe.encoder, shaken(Model.build(recipe, VOCABULARY).encoder.double(), 0.1).eval()


def with_gates(encoder: Encoder, kept: Subnetwork) -> ExitStack:
    stack = ExitStack()
    for block, sublayers in enumerate(encoder.blocks):
        if kept.heads is not None:
            gate = torch.zeros(encoder.num_heads, 1, 1, dtype=torch.float64)
            gate[list(kept.heads[block])] = 1
            stack.enter_context(encoder.gate({f"blocks.{block}.attention.context": gate}))
        if kept.units is not None:
            gate = torch.zeros(sublayers.sublayers["feed_forward"].down.in_features).double()
            gate[list(kept.units[block])] = 1
            stack.enter_context(encoder.gate({f"blocks.{block}.feed_forward.activation": gate}))
    return stack


GATED = "encoder.mixer.gate=silu"
SYSTEMS = ["bert", "roberta", "gpt", "gpt-2", "modern", "modernbert", "spanbert", "xlm"]


@pytest.mark.parametrize(
    "kept", [Subnetwork(HEADS), Subnetwork(units=UNITS), Subnetwork(HEADS, UNITS)]
)
@pytest.mark.parametrize("system", [*SYSTEMS, "albert", f"bert {GATED}"])
def test_a_pruned_encoder_is_the_gated_one(system: str, kept: Subnetwork) -> None:
    if system == "albert":
        kept = Subnetwork(
            *(None if part is None else part[:1] * 2 for part in (kept.heads, kept.units))
        )
    config, encoder = config_and_encoder(*system.split())
    token_ids = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    with with_gates(encoder, kept):
        expected = encoder(token_ids)
    pruned = Encoder(kept.prune_config(config), VOCABULARY).double().eval()
    pruned.load_state_dict(prune_weights(encoder.state_dict(), config, kept, prefix=""))
    torch.testing.assert_close(pruned(token_ids), expected, rtol=0, atol=1e-12)
    sizes = [sum(p.numel() for p in e.parameters()) for e in (pruned, encoder)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("system", "kept", "message"),
    [
        ("t5", Subnetwork(HEADS), "pruned_sizes.heads needs plain attention"),
        ("performer", Subnetwork(HEADS), "pruned_sizes.heads needs plain attention"),
        ("longformer-char", Subnetwork(HEADS), "visibility to one rule for all"),
        ("mobilebert", Subnetwork(HEADS), "bottleneck to null"),
        ("mobilebert", Subnetwork(units=UNITS), "feed_forward"),
        ("elmo", Subnetwork(units=UNITS), "feed_forward"),
        ("albert", Subnetwork(UNITS[:1] * 2, ((1,), (1, 2))), "blocks 0 and 1 share"),
        ("bert", Subnetwork(((1,), ())), "block 1"),
        ("bert", Subnetwork(((1,),)), "1 "),
    ],
)
def test_impossible_prunings_are_refused(system: str, kept: Subnetwork, message: str) -> None:
    with pytest.raises(UserError, match=message):
        kept.prune_config(toy(system).encoder)


def test_a_pruned_model_can_be_saved(tmp_path: Path) -> None:
    case = small_inputs()
    model, tokenizer = case.model.text_model.model, case.model.tokenizer
    importance = head_importances(MaskedLMProbe(case.model, case.texts))
    kept = Subnetwork(select_most_important(importance, 0.5))
    pruned = prune_model(model, kept)
    assert sum(map(len, kept.heads or ())) == importance.size / 2
    gates = open_gates(case.model) * 0
    for layer, heads in enumerate(kept.heads or ()):
        gates[layer, list(heads)] = 1
    with gate_heads(case.model, gates):
        expected = MaskedLMProbe(case.model, case.texts).evaluate().loss
    analysed = AnalysedModel("pruned", TextModel(pruned.double(), tokenizer, "float32"))
    np.testing.assert_allclose(
        MaskedLMProbe(analysed, case.texts).evaluate().loss, expected, rtol=1e-12
    )
    save_model(tmp_path / "pruned", pruned, tokenizer)
    loaded, _ = load_model(tmp_path / "pruned")
    assert loaded.recipe == pruned.recipe
    assert {n: t.shape for n, t in loaded.state_dict().items()} == {
        n: t.shape for n, t in pruned.state_dict().items()
    }


def test_shared_blocks_are_pruned_once() -> None:
    model = Model.build(toy("albert"), VOCABULARY)
    pruned = prune_model(model, Subnetwork(HEADS[:1] * 2, UNITS[:1] * 2))
    down = "encoder.blocks.0.sublayers.feed_forward.down.weight"
    original = model.state_dict()[down]
    assert torch.equal(pruned.state_dict()[down], original[:, list(UNITS[0])])


def test_every_layer_keeps_a_head() -> None:
    importance = np.array([[0.1, 0.2, 0.3], [3.0, 2.0, 1.0]])
    assert select_most_important(importance, 0.5) == [[2], [0, 1]]
    assert select_most_important(importance, 1.0) == [[2], [0]]
    assert select_most_important(importance, 0.0) == [[0, 1, 2], [0, 1, 2]]


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=4),
    st.floats(0, 1),
)
def test_the_least_important_parts_are_removed(layers: list[list[float]], fraction: float) -> None:
    kept = select_most_important([np.array(values) for values in layers], fraction)
    removed = [
        [part for part in range(len(values)) if part not in of_layer]
        for values, of_layer in zip(layers, kept, strict=True)
    ]
    total, most = sum(map(len, layers)), sum(len(values) - 1 for values in layers)
    assert sum(map(len, removed)) == min(round(fraction * total), most)
    threshold = max((layers[n][p] for n, parts in enumerate(removed) for p in parts), default=0)
    for values, of_layer in zip(layers, kept, strict=True):
        assert of_layer == sorted(of_layer)
        assert len(of_layer) == 1 or min(values[part] for part in of_layer) >= threshold


@pytest.mark.parametrize(
    ("fraction", "heads", "units"), [(0.5, 1, 64), (0.25, 2, 96), (0.9, 1, 13)]
)
def test_the_first_parts_of_every_block_are_kept(fraction: float, heads: int, units: int) -> None:
    kept = first_subnetwork(toy("bert").encoder, fraction)
    num_heads = sum(map(len, kept.heads or ()))
    assert kept.units == [list(range(units))] * 2
    assert all(part == list(range(len(part))) for part in kept.heads or ())
    assert num_heads in (2 * heads, 2 * heads - 1)
    assert first_subnetwork(toy("bert").encoder, 0) == first_subnetwork(toy("bert").encoder, 1e-9)


@torch.no_grad()
def test_the_size_of_a_unit_is_the_product_of_its_lengths() -> None:
    """Lengths, and not their squares: 4 times 1 is less than 2 times 3."""
    model = Model.build(toy("bert"), VOCABULARY)
    for block in model.encoder.blocks:
        up, down = (
            block.get_submodule(f"sublayers.feed_forward.{name}").weight for name in ("up", "down")
        )
        up.zero_()
        down.zero_()
        for unit, (before, behind) in enumerate([(4, 1), (2, 3), (1, 5)]):
            up[unit, :2] = torch.tensor([0.6, -0.8]) * before
            down[:2, unit] = torch.tensor([0.8, -0.6]) * behind
    assert largest_units(model, 1) == [[1], [1]]
    assert largest_units(model, 2) == [[1, 2], [1, 2]]
    width = up.shape[0]
    assert largest_units(model, width) == [list(range(width))] * 2


@pytest.mark.parametrize("system", ["bert", "modern"])
@torch.no_grad()
def test_the_largest_units_are_those_that_are_not_zero(system: str) -> None:
    model = shaken(Model.build(toy(system), VOCABULARY), 0.1).eval()
    for block, kept in zip(model.encoder.blocks, UNITS, strict=True):
        down = block.get_submodule("sublayers.feed_forward.down").weight
        down[:, [unit for unit in range(down.shape[1]) if unit not in kept]] *= 1e-6
    units = largest_units(model, 2)
    assert {*units[0]} < {0, 3, 4}
    assert units[1] == [2, 5]
    assert largest_units(model, 3)[0] == [0, 3, 4]
    pruned = prune_model(model, Subnetwork(units=largest_units(model, 3)))
    token_ids = torch.arange(5, 17)[None]
    torch.testing.assert_close(pruned(token_ids), model(token_ids), atol=1e-4, rtol=1e-4)
    with pytest.raises(UserError, match=r"layer 1 has .* feed-forward units"):
        largest_units(model, 10_000)
