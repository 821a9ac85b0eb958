"""Attention kernels: several implementations of one function.

``explicit`` is the definition, and exposes scores and weights to hooks. ``fused`` makes fewer
passes over the weights with a compiled loop; all others never store the weights. A kernel declares
what it supports; any other call is an error that names the kernels that support it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.modules.attention.kernels.inputs import AttentionInputs, mask_to_bias
from bertwright.modules.attention.kernels.tiled import tiled_attention
from bertwright.modules.attention.mask import AttentionMask
from bertwright.modules.dropout_rng import dropout
from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.hooks import tap
from bertwright.runtime.checked_compilation import compile_checked

KernelName = Literal["auto", "explicit", "sdpa", "tiled", "varlen", "flex"]

MIN_SDPA_LENGTH = 256
"""Above this length SDPA is faster than explicit scores on a CPU (measured with bench)."""


@dataclass(frozen=True)
class AttentionKernel:
    """An implementation of attention, and what it supports."""

    name: str
    compute: Callable[[AttentionInputs], Tensor]
    exposes_weights: bool = False
    supports_dropout: bool = False
    supports_bias: bool = False
    supports_other_keys: bool = False
    layouts: tuple[str, ...] = ("all", "causal", "documents", "mask")
    devices: tuple[str, ...] = ("cpu", "cuda", "mps")
    half_precision_only: bool = False
    min_head_width: int = 1
    needs_compiler: bool = False

    def unsupported(self, inputs: AttentionInputs) -> str | None:
        """Return the part of a call that this kernel does not support; None if it supports all."""
        if (
            not self.exposes_weights
            and inputs.hooks is not None
            and inputs.hooks.is_requested("scores", "weights")
        ):
            return "hooks on attention scores or weights"
        if not self.supports_dropout and inputs.has_dropout:
            return "dropout of attention weights"
        if not self.supports_bias and inputs.score_bias is not None:
            return "a score bias"
        if not self.supports_other_keys and not inputs.is_self_attention:
            return "keys of other tokens than the queries"
        if inputs.mask.layout not in self.layouts:
            return f"an attention mask with layout {inputs.mask.layout!r}"
        if inputs.query.device.type not in self.devices:
            return f"the device {inputs.query.device.type!r}"
        if self.half_precision_only and inputs.query.dtype not in (torch.float16, torch.bfloat16):
            return str(inputs.query.dtype).removeprefix("torch.")
        if self.needs_compiler and not inputs.may_compile:
            return "running without compilation"
        if inputs.query.shape[-1] < self.min_head_width:
            return f"heads narrower than {self.min_head_width}"
        return None


def attend(inputs: AttentionInputs, name: KernelName) -> Tensor:
    """Return the context (B, H, L, d): the weighted mean of the allowed values for each query."""
    kernel = KERNELS[_choose_kernel(inputs) if name == "auto" else name]
    reason = kernel.unsupported(inputs)
    if reason is not None:
        alternatives = [
            k.name
            for k in KERNELS.values()
            if not k.needs_compiler and k.unsupported(inputs) is None
        ]
        raise UserError(
            f"the attention kernel {name!r} does not support {reason}: set encoder.mixer.kernel to "
            f"{' or '.join(alternatives)}"
        )
    return kernel.compute(inputs)


def _choose_kernel(inputs: AttentionInputs) -> str:
    candidates = ("fused", "explicit")
    if inputs.mask.layout == "tiles":
        candidates = ("tiled",)
    elif torch.compiler.is_exporting():  # for any sequence length
        candidates = ("explicit",)
    elif inputs.query.device.type == "cuda":
        candidates = ("sdpa", "explicit")
        if inputs.mask.layout in ("documents", "mask") and inputs.is_self_attention:
            # Flex is compiled for each length and batch size, so it is used in compiled steps only.
            flex = ("flex",) if torch.compiler.is_compiling() else ()
            candidates = ("varlen", *flex, "sdpa", "explicit")
    elif inputs.query.shape[2] > MIN_SDPA_LENGTH:
        candidates = ("sdpa", "explicit")
    return next(name for name in candidates if KERNELS[name].unsupported(inputs) is None)


def _explicit_attention(inputs: AttentionInputs) -> Tensor:
    query, key, mask = inputs.query, inputs.key, inputs.mask
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = at_least_float32(scores).mul_(inputs.score_scale)
    if inputs.score_bias is not None:
        scores = scores + inputs.score_bias
    scores = tap(inputs.hooks, "scores", scores)
    allowed = _allowed_keys(inputs)
    if allowed is not None:
        # Adding a bias takes a quarter of the time of masked_fill over all heads.
        mask_bias = mask_to_bias(allowed, scores.dtype)
        scores = scores + mask_bias if inputs.hooks else scores.add_(mask_bias)
    weights = torch.softmax(scores, dim=-1)
    if mask.fully_masked is not None:
        weights = weights.masked_fill(mask.fully_masked, 0.0)
    weights = tap(inputs.hooks, "weights", weights)
    weights = dropout(
        weights,
        inputs.dropout_rate,
        inputs.dropout_rng,
        inputs.dropout_stream,
        inputs.weight_indices,
    )
    weights = weights.to(query.dtype)
    return torch.matmul(weights, inputs.value)


def _allowed_keys(inputs: AttentionInputs) -> Tensor | None:
    """Return the dense mask, broadcastable to (B, H, L, L); None if nothing is masked."""
    if inputs.mask.layout != "causal":
        return inputs.mask.allowed
    length = inputs.query.shape[2]
    return torch.ones(length, length, dtype=torch.bool, device=inputs.query.device).tril()


def _fused_attention(inputs: AttentionInputs) -> Tensor:
    scores = torch.matmul(inputs.query, inputs.key.transpose(-1, -2))
    allowed = _allowed_keys(inputs)
    mask_bias = None if allowed is None else mask_to_bias(allowed, torch.float32)
    weights = fused_softmax(scores, mask_bias, inputs.score_scale)
    return _zero_fully_masked(torch.matmul(weights, inputs.value), inputs.mask)


@compile_checked
def fused_softmax(scores: Tensor, mask_bias: Tensor | None, score_scale: float) -> Tensor:
    """Return softmax(scores * score_scale + mask_bias), computed in float32."""
    exact = scores.float() * score_scale
    if mask_bias is not None:
        exact = exact + mask_bias
    exact = (exact - exact.amax(-1, keepdim=True)).exp()
    return (exact / exact.sum(-1, keepdim=True)).to(scores.dtype)


def _sdpa_attention(inputs: AttentionInputs) -> Tensor:
    mask, is_causal = inputs.mask.allowed, inputs.mask.layout == "causal"
    if inputs.score_bias is not None:
        allowed, is_causal = _allowed_keys(inputs), False
        mask = inputs.score_bias.to(inputs.query.dtype)
        mask = mask if allowed is None else mask.masked_fill(~allowed, -torch.inf)
    context = F.scaled_dot_product_attention(
        inputs.query,
        inputs.key,
        inputs.value,
        attn_mask=mask,
        is_causal=is_causal,
        scale=inputs.score_scale,
    )
    return _zero_fully_masked(context, inputs.mask)


def _varlen_attention(inputs: AttentionInputs) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    batch, heads, length, width = inputs.query.shape
    query, key, value = (
        x.transpose(1, 2).reshape(batch * length, heads, width)
        for x in (inputs.query, inputs.key, inputs.value)
    )
    cu_seqlens = inputs.mask.cu_seqlens
    if cu_seqlens is None:
        sequences = torch.arange(batch + 1, dtype=torch.int32, device=query.device)
        cu_seqlens = sequences * length
    context = varlen_attn(
        query, key, value, cu_seqlens, cu_seqlens, length, length, scale=inputs.score_scale
    )
    assert isinstance(context, Tensor)
    context = context.view(batch, length, heads, width).transpose(1, 2)
    return _zero_fully_masked(context, inputs.mask)


def _flex_attention(inputs: AttentionInputs) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    length, device = inputs.query.shape[2], inputs.query.device.type
    if torch.compiler.is_compiling():
        block_mask, run = _flex_block_mask(inputs.mask, length, device), flex_attention
    else:
        if inputs.mask not in _FLEX_BLOCK_MASKS:
            _FLEX_BLOCK_MASKS[inputs.mask] = _flex_block_mask(inputs.mask, length, device)
        block_mask = _FLEX_BLOCK_MASKS[inputs.mask]
        run = _compile_flex() if inputs.query.is_cuda else flex_attention
    context: Tensor = run(
        inputs.query, inputs.key, inputs.value, block_mask=block_mask, scale=inputs.score_scale
    )
    return _zero_fully_masked(context, inputs.mask)


@cache
def _compile_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


_FLEX_BLOCK_MASKS: WeakKeyDictionary[AttentionMask, Any] = WeakKeyDictionary()
"""Block masks by attention mask, as several encoder blocks share a mask."""


def _flex_block_mask(attention_mask: AttentionMask, length: int, device: str) -> Any:
    """Return flex attention's block mask, which marks blocks of scores with allowed pairs."""
    from torch.nn.attention.flex_attention import create_block_mask

    allowed = attention_mask.allowed

    def is_allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        assert allowed is not None
        return allowed[b.clamp(max=len(allowed) - 1), h.clamp(max=allowed.shape[1] - 1), q, k]

    def is_causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k

    mask_function = {"all": None, "causal": is_causal}.get(attention_mask.layout, is_allowed)
    if mask_function is None:
        return None
    batch, heads = (
        (None, None) if allowed is None else (n if n > 1 else None for n in allowed.shape[:2])
    )
    return create_block_mask(mask_function, batch, heads, length, length, device=device)


def _zero_fully_masked(context: Tensor, mask: AttentionMask) -> Tensor:
    return context if mask.fully_masked is None else context.masked_fill(mask.fully_masked, 0.0)


KERNELS: dict[str, AttentionKernel] = {
    kernel.name: kernel
    for kernel in (
        AttentionKernel(
            "explicit",
            _explicit_attention,
            exposes_weights=True,
            supports_dropout=True,
            supports_bias=True,
            supports_other_keys=True,
        ),
        AttentionKernel(
            "fused",
            _fused_attention,
            supports_other_keys=True,
            devices=("cpu",),
            needs_compiler=True,
        ),
        AttentionKernel("sdpa", _sdpa_attention, supports_bias=True, supports_other_keys=True),
        AttentionKernel(
            "varlen",
            _varlen_attention,
            layouts=("all", "documents"),
            devices=("cuda",),
            half_precision_only=True,
        ),
        AttentionKernel("flex", _flex_attention, devices=("cuda",), min_head_width=16),
        AttentionKernel("tiled", tiled_attention, supports_dropout=True, layouts=("tiles",)),
    )
}
