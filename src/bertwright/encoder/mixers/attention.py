"""Multi-head attention (Vaswani et al. 2017)."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.encoder.kernels.attention import Call, KernelName, attend
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers.global_rows import GlobalRows
from bertwright.encoder.mixers.mixer import InHeads
from bertwright.encoder.positions import HeadShape, Positions, Term, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap
from bertwright.encoder.visibility import Tiling


class AttentionChoice(InHeads):
    """Scaled dot-product attention in several heads.

    ``dropout`` is the rate for attention weights while training. ``global_projections`` gives the
    places that see everything queries, keys and values of their own (Beltagy et al. 2020).
    """

    kind: Literal["attention"] = "attention"
    remembers: ClassVar[bool] = True
    dropout: float = 0.0
    kernel: KernelName = "auto"
    global_projections: bool = False

    @property
    def tiling(self) -> Tiling:
        named: dict[str, Tiling] = {"auto": "auto", "tiled": "always"}
        return named.get(self.kernel, "never")

    def operations(self, width: int, length: int) -> tuple[float, float]:
        if not self.global_projections:
            return 8 * width**2, 4 * length * width
        # Counted for one such place in a row.
        return 12 * width**2 + 4 * width + 2 * width**2 / length, 4 * length * width

    def build(self, width: int, positions: Positions) -> nn.Module:
        shape = self.shape(width)
        term = positions.term(shape)
        if term is not None and self.global_projections:
            raise ValueError(
                "global projections take no term of the scores: choose other positions"
            )
        return Attention(self, shape, term)


class Attention(nn.Module):
    """Queries, keys and values by one fused projection; a kernel; an output projection."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "projection.weight": Role("matrix", parts=3),
        "output.weight": Role("matrix", residual=True),
    }

    def __init__(self, choice: AttentionChoice, shape: HeadShape, term: Term | None) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.rate, self.biased = choice.dropout, choice.bias
        self.kernel: KernelName = choice.kernel
        self.term = term
        self.projection = nn.Linear(width, 3 * width, choice.bias)
        self.output = nn.Linear(width, width, choice.bias)
        self.global_rows = (
            GlobalRows(shape, choice.bias, choice.dropout) if choice.global_projections else None
        )

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D); keys and values are made of ``past`` (B, M, D) as well."""
        batch, length, width = x.shape
        fused = self.projection(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = fused.permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            key, value = self._behind(past, key, value)
        if around.rotation is not None:
            query = rotate(query, around.rotation)
            key = rotate(key, around.key_rotation or around.rotation)
        query, key = tap(site, "query", query), tap(site, "key", key)
        value = tap(site, "value", value)
        bias, scale = around.bias, None
        if self.term is not None and around.relation is not None:
            bias = self.term(query, key, around.relation, self.projection)
            scale = self.term.scale
        call = Call(query, key, value, around.view, self.rate, noise, site, bias, scale)
        context = attend(call, self.kernel)
        if self.global_rows is not None:
            context = self.global_rows(x, context, around, noise, site)
        context = tap(site, "context", context)
        if site is not None and site.wants("heads"):
            return tap(site, "output", self._by_head(context, site))
        joined = context.transpose(1, 2).reshape(batch, length, width)
        return tap(site, "output", self.output(joined))

    def _behind(self, past: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, M + L, d) with those of the past in front."""
        batch, length, width = past.shape
        bias = self.projection.bias[width:] if self.biased else None
        fused = nn.functional.linear(past, self.projection.weight[width:], bias)
        made = fused.view(batch, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return torch.cat((made[0], key), dim=2), torch.cat((made[1], value), dim=2)

    def _by_head(self, context: Tensor, site: Site) -> Tensor:
        """What each head writes, (B, H, L, D), and their sum with the bias."""
        width = self.output.weight.shape[0]
        slices = self.output.weight.view(width, self.heads, -1).permute(1, 2, 0)
        written = tap(site, "heads", context @ slices)
        total = written.sum(1)
        return total + self.output.bias if self.biased else total
