"""Attention kernels: one call, several ways to compute it.

``explicit`` is the definition, with scores and weights to look at. ``fused`` computes the same with
fewer passes over the weights, where a loop may be compiled for it; the others never write them
down. A kernel declares what it can do; asking for what it lacks
is an error that names the kernels that have it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.fused import fused
from bertwright.encoder.kernels.noise import dropout
from bertwright.encoder.kernels.tiled import tiled
from bertwright.encoder.taps import tap
from bertwright.encoder.visibility import View
from bertwright.errors import UserError

KernelName = Literal["auto", "explicit", "sdpa", "tiled", "varlen", "flex"]

LONG = 256
"""Beyond this length the CPU's fused kernel beats explicit scores; measured with bench."""


@dataclass(frozen=True)
class Kernel:
    """A way to compute attention, and what it can do."""

    name: str
    compute: Callable[[Call], Tensor]
    weights: bool = False
    dropout: bool = False
    bias: bool = False
    other_keys: bool = False
    shapes: tuple[str, ...] = ("all", "causal", "documents", "mask")
    devices: tuple[str, ...] = ("cpu", "cuda", "mps")
    half_precision_only: bool = False
    narrowest: int = 1
    compiled: bool = False

    def lacks(self, call: Call) -> str | None:
        """What this kernel cannot do of a call, in words."""
        if not self.weights and call.site is not None and call.site.wants("scores", "weights"):
            return "attention scores or weights to look at"
        if not self.dropout and call.drops:
            return "dropout of attention weights"
        if not self.bias and call.bias is not None:
            return "a term of the scores"
        if not self.other_keys and not call.is_square:
            return "keys of other places than those of the queries"
        if call.view.shape not in self.shapes:
            return f"a visibility of shape {call.view.shape!r}"
        if call.query.device.type not in self.devices:
            return f"the device {call.query.device.type!r}"
        if self.half_precision_only and call.query.dtype == torch.float32:
            return "float32"
        if self.compiled and not call.fuses:
            return "leave to compile a loop"
        if call.query.shape[-1] < self.narrowest:
            return f"heads narrower than {self.narrowest}"
        return None


def attend(call: Call, name: KernelName) -> Tensor:
    """The context (B, H, L, d): for every query the weighted mean of the values it may see."""
    kernel = KERNELS[_automatic(call) if name == "auto" else name]
    lack = kernel.lacks(call)
    if lack is not None:
        able = [k.name for k in KERNELS.values() if not k.compiled and k.lacks(call) is None]
        raise UserError(
            f"the attention kernel {name!r} lacks {lack}: set encoder.mixer.kernel to "
            f"{' or '.join(able)}"
        )
    return kernel.compute(call)


def _automatic(call: Call) -> str:
    candidates = ("fused", "explicit")
    if call.view.shape == "tiles":
        candidates = ("tiled",)
    elif torch.compiler.is_exporting():  # for rows of any length
        candidates = ("explicit",)
    elif call.query.device.type == "cuda":
        candidates = ("sdpa", "explicit")
        if call.view.shape in ("documents", "mask") and call.is_square:
            # Flex is compiled for each length and each number of rows: for steps that are, too.
            flex = ("flex",) if torch.compiler.is_compiling() else ()
            candidates = ("varlen", *flex, "sdpa", "explicit")
    elif call.query.shape[2] > LONG:
        candidates = ("sdpa", "explicit")
    return next(name for name in candidates if KERNELS[name].lacks(call) is None)


def _explicit(call: Call) -> Tensor:
    query, key, view = call.query, call.key, call.view
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores.mul_(call.factor)
    if call.bias is not None:
        scores = scores + call.bias
    scores = tap(call.site, "scores", scores)
    seen = _seen(call)
    if seen is not None:
        # Added, not filled in: over all heads an addition takes a quarter of the time.
        unseen = _unseen(seen, scores.dtype)
        scores = scores + unseen if call.site else scores.add_(unseen)
    weights = torch.softmax(scores, dim=-1)
    if view.blind is not None:
        weights = weights.masked_fill(view.blind, 0.0)
    weights = tap(call.site, "weights", weights)
    weights = dropout(weights, call.rate, call.noise, call.dropout_site, call.numbers)
    weights = weights.to(query.dtype)
    return torch.matmul(weights, call.value)


def _seen(call: Call) -> Tensor | None:
    """Which key every query sees, broadcast to (B, H, L, L); None where it sees all."""
    if call.view.shape != "causal":
        return call.view.mask
    length = call.query.shape[2]
    return torch.ones(length, length, dtype=torch.bool, device=call.query.device).tril()


def _unseen(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What hides where nothing is seen, added to scores."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, -torch.inf)


def _fused(call: Call) -> Tensor:
    scores, seen = torch.matmul(call.query, call.key.transpose(-1, -2)), _seen(call)
    unseen = None if seen is None else _unseen(seen, torch.float32)
    weights = weights_of(scores, unseen, call.factor)
    return _without_blind(torch.matmul(weights, call.value), call.view)


@fused
def weights_of(scores: Tensor, unseen: Tensor | None, factor: float) -> Tensor:
    """softmax(scores times factor, plus unseen), computed in float32."""
    exact = scores.float() * factor
    if unseen is not None:
        exact = exact + unseen
    exact = (exact - exact.amax(-1, keepdim=True)).exp()
    return (exact / exact.sum(-1, keepdim=True)).to(scores.dtype)


def _sdpa(call: Call) -> Tensor:
    mask, causal = call.view.mask, call.view.shape == "causal"
    if call.bias is not None:
        seen, causal = _seen(call), False
        mask = call.bias.to(call.query.dtype)
        mask = mask if seen is None else mask.masked_fill(~seen, -torch.inf)
    context = F.scaled_dot_product_attention(
        call.query,
        call.key,
        call.value,
        attn_mask=mask,
        is_causal=causal,
        scale=call.factor,
    )
    return _without_blind(context, call.view)


def _varlen(call: Call) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    batch, heads, length, width = call.query.shape
    query, key, value = (
        x.transpose(1, 2).reshape(batch * length, heads, width)
        for x in (call.query, call.key, call.value)
    )
    bounds = call.view.bounds
    if bounds is None:
        steps = torch.arange(batch + 1, dtype=torch.int32, device=query.device)
        bounds = steps * length
    context = varlen_attn(query, key, value, bounds, bounds, length, length, scale=call.factor)
    assert isinstance(context, Tensor)
    context = context.view(batch, length, heads, width).transpose(1, 2)
    return _without_blind(context, call.view)


def _flex(call: Call) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    blocks = _flex_blocks(call.view, call.query.shape[2], call.query.device.type)
    fused = call.query.is_cuda and not torch.compiler.is_compiling()
    run = _compiled_flex() if fused else flex_attention
    context: Tensor = run(call.query, call.key, call.value, block_mask=blocks, scale=call.factor)
    return _without_blind(context, call.view)


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@lru_cache(maxsize=1)
def _flex_blocks(view: View, length: int, device: str) -> Any:
    """Which blocks of scores hold anything; the same for all blocks of the encoder."""
    from torch.nn.attention.flex_attention import create_block_mask

    mask = view.mask

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        assert mask is not None
        return mask[b.clamp(max=len(mask) - 1), h.clamp(max=mask.shape[1] - 1), q, k]

    def earlier(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k

    rule = {"all": None, "causal": earlier}.get(view.shape, seen)
    if rule is None:
        return None
    batch, heads = (None, None) if mask is None else (n if n > 1 else None for n in mask.shape[:2])
    return create_block_mask(rule, batch, heads, length, length, device=device)


def _without_blind(context: Tensor, view: View) -> Tensor:
    return context if view.blind is None else context.masked_fill(view.blind, 0.0)


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("explicit", _explicit, weights=True, dropout=True, bias=True, other_keys=True),
        Kernel("fused", _fused, other_keys=True, devices=("cpu",), compiled=True),
        Kernel("sdpa", _sdpa, bias=True, other_keys=True),
        Kernel(
            "varlen",
            _varlen,
            shapes=("all", "documents"),
            devices=("cuda",),
            half_precision_only=True,
        ),
        Kernel("flex", _flex, devices=("cuda",), narrowest=16),
        Kernel("tiled", tiled, dropout=True, shapes=("tiles",)),
    )
}
