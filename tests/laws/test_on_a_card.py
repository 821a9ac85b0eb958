"""A card computes what the processor does."""

import pytest
import torch
from torch import Tensor

from bertwright.encoder.kernels.attention import KERNELS, attend
from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    SameDocument,
    Visibility,
    Window,
    view,
)
from bertwright.model import Model
from recipes_at_toy_size import SYSTEMS, VOCABULARY, toy, toy_batches

RULES = [Bidirectional(), Causal(), SameDocument(), Causal() & SameDocument(), Window(size=20)]
LENGTH, HEADS, WIDTH = 128, 2, 64


@pytest.mark.parametrize("system", SYSTEMS)
def test_losses_and_gradients_are_those_of_the_processor(system: str, card: torch.device) -> None:
    recipe = toy(system)
    for phase in range(len(recipe.phases)):
        expected, found = (_loss_and_gradient(system, phase, on) for on in ("cpu", card))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def _loss_and_gradient(
    system: str, phase: int, device: torch.device | str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a phase's questions cost with dropout, and how all of it changes with the parameters."""
    model = Model.build(toy(system), VOCABULARY).to(device)
    noise = Noise.of(0, 0, 0, torch.device(device))
    losses: dict[str, Tensor] = {}
    for turn, batch in enumerate(toy_batches(model.recipe, phase, device)):
        for name, loss in model.losses(batch, model.recipe.objectives_of(phase), noise).items():
            losses[f"{turn} {name}"] = loss.sum / loss.count
    torch.stack([loss for loss in losses.values() if loss.requires_grad]).sum().backward()
    gradient = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
    return {name: loss.detach().cpu() for name, loss in losses.items()}, gradient


def _call(
    rule: Visibility, documents: bool, device: torch.device | str, dtype: torch.dtype
) -> Call:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(3, 2, HEADS, LENGTH, WIDTH, generator=generator).to(torch.bfloat16)
    query, key, value = (x.to(device, dtype).requires_grad_() for x in drawn)
    rows = [[0] * 50 + [1] * 78, [0] * 80 + [-1] * 48]
    document = torch.tensor(rows, device=device) if documents else None
    place = torch.arange(LENGTH, device=device)[None]
    seen = view(rule, Coordinates(place, document=document))
    return Call(query, key, value, seen, rate=0.0, noise=None, site=None)


CASES = [
    pytest.param(name, rule, documents, id=f"{name} {rule.kind} {documents=}")
    for name, kernel in KERNELS.items()
    for rule in RULES
    for documents in (False, True)
    if _call(rule, documents, "cpu", torch.bfloat16).view.shape in kernel.shapes
]
"""Kernels with what they can compute."""


@pytest.mark.parametrize(("name", "rule", "documents"), CASES)
def test_every_kernel_equals_the_definition(
    name: str, rule: Visibility, documents: bool, card: torch.device
) -> None:
    expected = _with_gradients(_call(rule, documents, card, torch.float32), "explicit")
    found = _with_gradients(_call(rule, documents, card, torch.bfloat16), name)
    for own, other in zip(found, expected, strict=True):
        assert (own.float() - other).norm() <= 1e-2 * other.norm()


def _with_gradients(call: Call, name: str) -> list[Tensor]:
    """The context, and the slopes of a sum of it in what it was made of."""
    context = attend(call, name)
    weight = torch.linspace(-1, 1, context.numel(), device=context.device).view_as(context)
    given = (call.query, call.key, call.value)
    return [context, *torch.autograd.grad((context * weight).sum(), given)]
