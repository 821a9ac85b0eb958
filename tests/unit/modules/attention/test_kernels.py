"""Every kernel equals the explicit definition, or says what it does not support."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import varlen

from bertwright.core.errors import UserError
from bertwright.modules.attention.kernels.inputs import AttentionInputs
from bertwright.modules.attention.kernels.kernels import KERNELS, attend
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    CausalVisibility,
    DilatedWindowVisibility,
    SameDocumentVisibility,
    WindowVisibility,
    build_attention_mask,
    cumulative_document_lengths,
)
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.hooks import HookPoint, Taps
from bertwright.modules.token_tensors import TokenInfo

RULES = [
    *(
        BidirectionalVisibility(),
        CausalVisibility(),
        SameDocumentVisibility(),
        CausalVisibility() & SameDocumentVisibility(),
        WindowVisibility(size=2),
    ),
    DilatedWindowVisibility(sizes=(2,), dilations=(2,), dilated_heads=1),
]


def _inputs(rule, padded, dtype=torch.float32, tiling="never", **changes):
    generator = torch.Generator().manual_seed(1)
    query, key, value = torch.randn(3, 2, 3, 12, 8, generator=generator, dtype=dtype).unbind(0)
    document_ids = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4]) if padded else None
    token_info = TokenInfo(torch.arange(12)[None], document_ids=document_ids)
    settings = {"dropout_rate": 0.0, "dropout_rng": None, "hooks": None, **changes}
    return AttentionInputs(
        query,
        key,
        value,
        build_attention_mask(rule, token_info, tiling=tiling, num_heads=3),
        **settings,
    )


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if "cpu" in k.devices])
def test_kernel_equals_explicit(name, rule, padded):
    expected = attend(_inputs(rule, padded), "explicit")
    tiling = "always" if name == "tiled" else "never"
    inputs = _inputs(rule, padded, tiling=tiling, may_compile=KERNELS[name].needs_compiler)
    torch.testing.assert_close(attend(inputs, name), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_flex_equals_explicit(rule):
    for padded, scale in ((True, None), (False, 1.0)):
        inputs = _inputs(rule, padded, scale=scale)
        flex = KERNELS["flex"].compute(inputs)
        torch.testing.assert_close(flex, attend(inputs, "explicit"), atol=1e-5, rtol=1e-5)


def _varlen_by_hand(query, key, value, starts, *_, scale):
    """Compute variable-length attention by its definition: x (B L, H, d)."""
    contexts = [
        F.scaled_dot_product_attention(
            *(x[first:end].transpose(0, 1) for x in (query, key, value)), scale=scale
        )
        for first, end in pairwise(starts.tolist())
        if first < end
    ]
    return torch.cat(contexts, dim=1).transpose(0, 1)


@pytest.mark.parametrize("padded", [True, False])
def test_varlen_equals_explicit_without_leaks(padded, monkeypatch):
    monkeypatch.setattr(varlen, "varlen_attn", _varlen_by_hand)
    inputs = _inputs(SameDocumentVisibility(), padded, scale=0.7)
    inputs.value.requires_grad_()
    allowed = torch.ones(2, 12, 12, dtype=torch.bool)
    if padded:
        document_ids = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4])
        allowed = (document_ids[:, :, None] == document_ids[:, None]) & (document_ids >= 0)[:, None]
        inputs = replace(
            inputs, mask=replace(inputs.mask, cu_seqlens=cumulative_document_lengths(document_ids))
        )
    context = KERNELS["varlen"].compute(inputs)
    torch.testing.assert_close(context, attend(inputs, "explicit"), atol=1e-6, rtol=1e-6)
    for position in range(12):
        output = context[:, :, position].square().sum()
        (gradient,) = torch.autograd.grad(output, inputs.value, retain_graph=True)
        assert torch.equal(gradient.abs().sum((1, 3)) > 0, allowed[:, position])


@pytest.mark.parametrize("name", ["explicit", "sdpa"])
def test_fully_masked_tokens_get_zeros_and_finite_gradients(name):
    inputs = _inputs(SameDocumentVisibility(), padded=True)
    inputs.query.requires_grad_()
    context = attend(inputs, name)
    assert context[1, :, 8:].abs().max() == 0
    context.sum().backward()
    assert inputs.query.grad.isfinite().all()


def test_unsupported_calls_name_other_kernels():
    taps = Taps()
    with (
        taps.record("weights"),
        pytest.raises(UserError, match=r"sdpa.*hooks on attention scores or weights.*explicit"),
    ):
        attend(_inputs(CausalVisibility(), False, hooks=HookPoint(taps)), "sdpa")
    with pytest.raises(UserError, match=r"dropout.*explicit"):
        attend(
            _inputs(
                CausalVisibility(), False, dropout_rate=0.1, dropout_rng=DropoutRng.for_step(0, 0)
            ),
            "sdpa",
        )
    with pytest.raises(UserError, match=r"varlen.*'causal'"):
        attend(_inputs(CausalVisibility(), False), "varlen")


def test_cumulative_document_lengths():
    document_ids = torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4])
    assert cumulative_document_lengths(document_ids).tolist() == [0, 5, 12, 20, 24, 24, 24, 24, 24]
