"""A reversible stack equals the stored one, with the memory of a single block."""

import pytest
import torch
from torch import Tensor

from bertwright.models import Model
from bertwright.modules.dropout_rng import DropoutRng
from toy_recipes import VOCABULARY, toy

TOKENS = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
MIXERS = {
    "hashing": "encoder.dropout=0.1",
    "attention": "encoder.mixer={kind: attention, head_width: 16, dropout: 0.1}",
}


def build_model(*overrides: str) -> Model:
    return Model.build(toy("reformer", "encoder.mixer.dropout=0.1", *overrides), VOCABULARY)


def gradients(model: Model, *patterns: str) -> dict[str, Tensor]:
    """Return hidden states and gradients; with hooks, all activations are stored."""
    model.zero_grad()
    weight = torch.randn(2, 24, 32, generator=torch.Generator().manual_seed(1))
    with model.record(*patterns):
        states = model.encoder(TOKENS, dropout_rng=DropoutRng.for_step(0, 3))
    (states * weight).sum().backward()
    by_name = {name: p.grad for name, p in model.encoder.named_parameters() if p.grad is not None}
    return {"states": states.detach(), **by_name}


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=list(MIXERS))
@pytest.mark.parametrize("sharing", ["none", "all"])
def test_gradients_equal_the_stored_stack(mixer: str, sharing: str) -> None:
    model = build_model(
        mixer, "encoder.depth.layers=4", f"encoder.depth.sharing={sharing}"
    ).double()
    reversible, stored = gradients(model), gradients(model, "output")
    assert reversible.keys() == stored.keys()
    for name, gradient in stored.items():
        torch.testing.assert_close(reversible[name], gradient, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("visibility", ["causal", "reversed"])
def test_a_recurrent_mixer_is_reversible(visibility: str) -> None:
    locked = "encoder.dropout={input: 0.1, hidden: 0.2, output: 0.3}"
    lstm = "encoder.mixer={kind: lstm, dropout: 0.1, forget: 0.0}"
    settings = (lstm, locked, "encoder.positions=none", f"encoder.visibility={visibility}")
    objective = (
        "objectives.causal.direction=" + {"causal": "forward", "reversed": "backward"}[visibility]
    )
    model = build_model(*settings, objective).double()
    reversible, stored = gradients(model), gradients(model, "output")
    for name, gradient in stored.items():
        torch.testing.assert_close(reversible[name], gradient, atol=1e-9, rtol=1e-9)


def test_hidden_states_follow_the_equations() -> None:
    model = build_model("encoder.mixer={kind: attention, head_width: 16}").double()
    with model.record("*") as values:
        states = model(TOKENS)
    first = second = values["embeddings.output"]
    for index in range(2):
        first = first + values[f"blocks.{index}.attention.output"]
        assert torch.equal(values[f"blocks.{index}.residual_middle"], first)
        second = second + values[f"blocks.{index}.feed_forward.output"]
    torch.testing.assert_close(model.encoder.norm((first + second) / 2), states)


def test_stop_after() -> None:
    model = build_model()
    with model.record("blocks.0.residual") as values:
        model(TOKENS)
    early = model(TOKENS, stop_after=0)
    torch.testing.assert_close(early, values["blocks.0.residual"])


def test_memory_does_not_grow_with_the_depth() -> None:
    stored_bytes: dict[tuple[int, bool], int] = {}
    for layers in (2, 8):
        for stored in (False, True):
            model = build_model(f"encoder.depth.layers={layers}")
            sizes: list[int] = []

            def record(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
                sizes.append(tensor.untyped_storage().nbytes())
                return tensor

            hooks = torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor)
            with hooks, model.record(*(["output"] if stored else [])):
                model.encoder(TOKENS, dropout_rng=DropoutRng.for_step(0, 3))
            stored_bytes[layers, stored] = sum(sizes)
    assert stored_bytes[8, False] == stored_bytes[2, False]
    assert stored_bytes[8, True] > 3 * stored_bytes[2, True]


def test_gradients_in_half_precision() -> None:
    model = build_model("encoder.depth.layers=4").bfloat16()
    reversible, stored = gradients(model), gradients(model, "output")
    for name, gradient in stored.items():
        difference = (reversible[name] - gradient).float().norm()
        assert difference <= 0.05 * gradient.float().norm(), name


@pytest.mark.parametrize(
    "change",
    [
        "norm.placement=post",
        "depth={kind: sublayers, order: sfsf}",
        "depth={kind: halting, layers: 2}",
        "depth.order=sff",
        "depth.drop=0.1",
        "depth.every=2",
        "positions={kind: alibi}",
        "positions={kind: every-block}",
        "memory_length=24",
    ],
)
def test_incompatible_settings_are_rejected(change: str) -> None:
    from bertwright.core.errors import UserError

    with pytest.raises(UserError, match=r"needs|does not support"):
        build_model(f"encoder.{change}", "encoder.mixer={kind: attention, head_width: 16}")
