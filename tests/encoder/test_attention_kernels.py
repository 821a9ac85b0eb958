"""Every kernel equals the explicit definition, and says so where it cannot."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import varlen

from bertwright.encoder.kernels.attention import KERNELS, attend
from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.taps import Site, Taps
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    SameDocument,
    Window,
    Windows,
    document_bounds,
    view,
)
from bertwright.errors import UserError

RULES = [
    *(Bidirectional(), Causal(), SameDocument(), Causal() & SameDocument(), Window(size=2)),
    Windows(sizes=(2,), dilations=(2,), dilated_heads=1),
]


def _call(rule, padded, dtype=torch.float32, tiling="never", **changes):
    generator = torch.Generator().manual_seed(1)
    query, key, value = torch.randn(3, 2, 3, 12, 8, generator=generator, dtype=dtype).unbind(0)
    document = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4]) if padded else None
    coordinates = Coordinates(torch.arange(12)[None], document=document)
    settings = {"rate": 0.0, "noise": None, "site": None, **changes}
    return Call(query, key, value, view(rule, coordinates, tiling=tiling, heads=3), **settings)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if "cpu" in k.devices])
def test_kernel_equals_explicit(name, rule, padded):
    expected = attend(_call(rule, padded), "explicit")
    tiling = "always" if name == "tiled" else "never"
    call = _call(rule, padded, tiling=tiling, fuses=KERNELS[name].compiled)
    torch.testing.assert_close(attend(call, name), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_flex_computes_what_explicit_does(rule):
    for padded, scale in ((True, None), (False, 1.0)):
        call = _call(rule, padded, scale=scale)
        flex = KERNELS["flex"].compute(call)
        torch.testing.assert_close(flex, attend(call, "explicit"), atol=1e-5, rtol=1e-5)


def _by_bounds(query, key, value, starts, *_, scale):
    """What the kernel for documents by length computes, by its definition: x (B L, H, d)."""
    parts = [
        F.scaled_dot_product_attention(
            *(x[first:end].transpose(0, 1) for x in (query, key, value)), scale=scale
        )
        for first, end in pairwise(starts.tolist())
        if first < end
    ]
    return torch.cat(parts, dim=1).transpose(0, 1)


@pytest.mark.parametrize("padded", [True, False])
def test_documents_by_length_are_what_the_rule_shows_and_nothing_else(padded, monkeypatch):
    monkeypatch.setattr(varlen, "varlen_attn", _by_bounds)
    call = _call(SameDocument(), padded, scale=0.7)
    call.value.requires_grad_()
    seen = torch.ones(2, 12, 12, dtype=torch.bool)
    if padded:
        document = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4])
        seen = (document[:, :, None] == document[:, None]) & (document >= 0)[:, None]
        call = replace(call, view=replace(call.view, bounds=document_bounds(document)))
    context = KERNELS["varlen"].compute(call)
    torch.testing.assert_close(context, attend(call, "explicit"), atol=1e-6, rtol=1e-6)
    for place in range(12):
        asked = context[:, :, place].square().sum()
        (gradient,) = torch.autograd.grad(asked, call.value, retain_graph=True)
        assert torch.equal(gradient.abs().sum((1, 3)) > 0, seen[:, place])


@pytest.mark.parametrize("name", ["explicit", "sdpa"])
def test_a_row_that_sees_nothing_gives_zeros_and_finite_gradients(name):
    call = _call(SameDocument(), padded=True)
    call.query.requires_grad_()
    context = attend(call, name)
    assert context[1, :, 8:].abs().max() == 0
    context.sum().backward()
    assert call.query.grad.isfinite().all()


def test_what_a_kernel_lacks_is_an_error_that_names_who_has_it():
    taps = Taps()
    with (
        taps.record("weights"),
        pytest.raises(UserError, match=r"sdpa.*weights to look at.*explicit"),
    ):
        attend(_call(Causal(), False, site=Site(taps)), "sdpa")
    with pytest.raises(UserError, match=r"dropout.*explicit"):
        attend(_call(Causal(), False, rate=0.1, noise=Noise.of(0, 0)), "sdpa")
    with pytest.raises(UserError, match=r"varlen.*'causal'"):
        attend(_call(Causal(), False), "varlen")


def test_the_document_bounds_of_the_varlen_layout():
    document = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4])
    assert document_bounds(document).tolist() == [0, 5, 12, 20, 24, 24, 24, 24, 24]
