"""A reversible stack is the stored one, with the memory of a single block."""

import pytest
import torch
from torch import Tensor

from bertwright.encoder.kernels.noise import Noise
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, toy

PIECES = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
MIXERS = {
    "hashing": "encoder.dropout=0.1",
    "attention": "encoder.mixer={kind: attention, head_width: 16, dropout: 0.1}",
}


def built(*overrides: str) -> Model:
    return Model.build(toy("reformer", "encoder.mixer.dropout=0.1", *overrides), VOCABULARY)


def gradients(model: Model, *patterns: str) -> dict[str, Tensor]:
    """With a pattern that is listened to, everything is stored."""
    model.zero_grad()
    weight = torch.randn(2, 24, 32, generator=torch.Generator().manual_seed(1))
    with model.record(*patterns):
        states = model.encoder(PIECES, noise=Noise.of(0, 3))
    (states * weight).sum().backward()
    found = {name: p.grad for name, p in model.encoder.named_parameters() if p.grad is not None}
    return {"states": states.detach(), **found}


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=list(MIXERS))
@pytest.mark.parametrize("sharing", ["none", "all"])
def test_its_gradients_are_those_of_the_stored_stack(mixer: str, sharing: str) -> None:
    model = built(mixer, "encoder.depth.layers=4", f"encoder.depth.sharing={sharing}").double()
    reversible, stored = gradients(model), gradients(model, "output")
    assert reversible.keys() == stored.keys()
    for name, gradient in stored.items():
        torch.testing.assert_close(reversible[name], gradient, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("rule", ["causal", "reversed"])
def test_what_reads_place_by_place_is_run_backwards_as_well(rule: str) -> None:
    locked = "encoder.dropout={input: 0.1, hidden: 0.2, output: 0.3}"
    lstm = "encoder.mixer={kind: lstm, dropout: 0.1, forget: 0.0}"
    settings = (lstm, locked, "encoder.positions=none", f"encoder.visibility={rule}")
    asking = "objectives.causal.direction=" + {"causal": "forward", "reversed": "backward"}[rule]
    model = built(*settings, asking).double()
    reversible, stored = gradients(model), gradients(model, "output")
    for name, gradient in stored.items():
        torch.testing.assert_close(reversible[name], gradient, atol=1e-9, rtol=1e-9)


def test_its_equations() -> None:
    model = built("encoder.mixer={kind: attention, head_width: 16}").double()
    with model.record("*") as values:
        states = model(PIECES)
    first = second = values["embeddings.output"]
    for index in range(2):
        first = first + values[f"blocks.{index}.attention.output"]
        assert torch.equal(values[f"blocks.{index}.residual_middle"], first)
        second = second + values[f"blocks.{index}.feed_forward.output"]
    torch.testing.assert_close(model.encoder.norm((first + second) / 2), states)


def test_a_stack_that_ends_early_is_the_shorter_one() -> None:
    model = built()
    with model.record("blocks.0.residual") as values:
        model(PIECES)
    early = model(PIECES, stop_after=0)
    torch.testing.assert_close(early, values["blocks.0.residual"])


def test_what_it_keeps_does_not_grow_with_the_depth() -> None:
    kept: dict[tuple[int, bool], int] = {}
    for layers in (2, 8):
        for stored in (False, True):
            model = built(f"encoder.depth.layers={layers}")
            sizes: list[int] = []

            def note(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
                sizes.append(tensor.untyped_storage().nbytes())
                return tensor

            hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
            with hooks, model.record(*(["output"] if stored else [])):
                model.encoder(PIECES, noise=Noise.of(0, 3))
            kept[layers, stored] = sum(sizes)
    assert kept[8, False] == kept[2, False]
    assert kept[8, True] > 3 * kept[2, True]


def test_in_half_precision_the_streams_are_found_again() -> None:
    model = built("encoder.depth.layers=4").bfloat16()
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
        "memory=24",
    ],
)
def test_what_cannot_be_reversed_is_refused(change: str) -> None:
    from bertwright.errors import UserError

    with pytest.raises(UserError, match=r"needs|takes no term"):
        built(f"encoder.{change}", "encoder.mixer={kind: attention, head_width: 16}")
