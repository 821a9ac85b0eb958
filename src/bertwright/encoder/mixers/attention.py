"""Multi-head attention (Vaswani et al. 2017)."""

from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.encoder.cache import KeysAndValues
from bertwright.encoder.feed_forward import ACTIVATIONS, Activation
from bertwright.encoder.kernels.attention import KernelName, attend
from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers.global_rows import GlobalRows
from bertwright.encoder.mixers.mixer import InHeads
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import HeadShape, Positions, Term, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap
from bertwright.encoder.visibility import Tiling

ACROSS = 2000
"""Of the noise of cross-attention within a block: more than there are blocks."""


class AttentionChoice(InHeads):
    """Scaled dot-product attention in several heads.

    ``dropout`` is the rate for attention weights while training. ``gate`` is the activation of one
    more projection, which the context is multiplied with (Charpentier and Samuel 2024).
    ``global_projections`` gives the places that see everything queries, keys and values of their
    own (Beltagy et al. 2020). ``width`` is that of all heads together, where it is not that of the
    model. Where scores are not ``scaled`` by the root of the width of a head, queries begin as much
    smaller (Raffel et al. 2020).
    """

    kind: Literal["attention"] = "attention"
    remembers: ClassVar[bool] = True
    dropout: float = Field(default=0.0, ge=0, lt=1)
    kernel: KernelName = "auto"
    gate: Activation | None = None
    global_projections: bool = False
    width: int | None = Field(default=None, ge=1, le=65_536)
    scaled: bool = True

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.global_projections and (self.width is not None or not self.scaled):
            raise ValueError(
                "global_projections are of the width of the model and scaled: leave out width and "
                "scaled"
            )
        return self

    def takes(self, positions: Positions) -> bool:
        plain = self.scaled and not self.global_projections
        return plain or positions.term(HeadShape(1, 2, 2)) is None

    @property
    def caches(self) -> bool:
        return not self.global_projections

    @property
    def tiling(self) -> Tiling:
        named: dict[str, Tiling] = {"auto": "auto", "tiled": "always"}
        return named.get(self.kernel, "never")

    @property
    def asks_wide(self) -> bool:
        return self.global_projections

    def shape(self, width: int) -> HeadShape:
        return replace(super().shape(self.width or width), width=width)

    def operations(self, width: int, length: int) -> tuple[float, float]:
        inner = self.shape(width).inner
        projected: float = (8 if self.gate is None else 10) * width * inner
        if self.global_projections:
            # Counted for one such place in a row.
            projected += 4 * width**2 + 4 * width + 2 * width**2 / length
        return projected, 4 * length * inner

    def build(
        self,
        width: int,
        positions: Positions,
        norm: Norm,
        projection: nn.Module | None = None,
    ) -> nn.Module:
        """``projection`` makes queries, keys and values; None for one matrix."""
        shape = self.shape(width)
        parts = 3 if self.gate is None else 4
        fused = projection or nn.Linear(width, parts * shape.inner, self.bias)
        term, wide = positions.term(shape), None
        if self.global_projections:
            wide = GlobalRows(shape, self.bias, self.dropout)
        return Attention(self, shape, fused, term, norm.within(shape.inner), wide)

    def across(self, width: int, norm: Norm) -> nn.Module:
        """The attention of a decoder to what an encoder has read."""
        return CrossAttention(self, self.shape(width), norm)


class Attention(nn.Module):
    """Queries, keys, values and perhaps gates by one fused projection; a kernel; for wide places
    what they find by themselves; a norm where there is one; an output projection."""

    def __init__(
        self,
        choice: AttentionChoice,
        shape: HeadShape,
        projection: nn.Module,
        term: Term | None,
        norm: nn.Module,
        global_rows: GlobalRows | None,
    ) -> None:
        super().__init__()
        self.width, self.heads = shape.inner, shape.heads
        self.scale = None if choice.scaled else 1.0
        self.rate, self.biased = choice.dropout, choice.bias
        self.kernel: KernelName = choice.kernel
        self.fuses = False
        self.gate = choice.gate
        self.term = term
        self.projection = projection
        self.global_rows = global_rows
        self.norm = norm
        self.output = nn.Linear(shape.inner, shape.width, choice.bias)

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """What the matrices are for."""
        parts = 3 if self.gate is None else 4
        return {
            "projection.weight": Role("matrix", parts=parts, first_part=self.beginning),
            "output.weight": Role("matrix", residual=True),
        }

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Tensor | KeysAndValues | None = None,
    ) -> Tensor:
        """x (B, L, D), or as wide as the projection reads, to (B, L, D).

        Keys and values are those of ``past`` as well.
        """
        batch, length, width = *x.shape[:2], self.width
        fused, gate = self.projection(x), None
        if self.gate is not None:
            fused, gate = fused.split((3 * width, width), dim=-1)
        fused = fused.view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = fused.permute(2, 0, 3, 1, 4).unbind(0)
        if isinstance(past, KeysAndValues):
            key, value = past.extended(key, value)
        elif past is not None:
            key, value = self._behind(past, key, value)
        if around.rotation is not None:
            query = rotate(query, around.rotation)
            key = rotate(key, around.key_rotation or around.rotation)
        query, key = tap(site, "query", query), tap(site, "key", key)
        value = tap(site, "value", value)
        bias, scale = around.bias, self.scale
        if self.term is not None and around.relation is not None:
            bias = self.term(query, key, around.relation, self.projection)
            scale = self.term.scale
        call = Call(
            query, key, value, around.view, self.rate, noise, site, bias, scale, fuses=self.fuses
        )
        context = attend(call, self.kernel)
        if self.global_rows is not None:
            context = self.global_rows(x, context, around, noise, site)
        return self.written(context, site, gate)

    def written(self, context: Tensor, site: Site | None, gate: Tensor | None = None) -> Tensor:
        """What is written to the states (B, L, D) of what was read (B, H, L, d)."""
        context = tap(site, "context", context)
        joined = context.transpose(1, 2).flatten(2)
        if gate is not None and self.gate is not None:
            joined = joined * ACTIVATIONS[self.gate](gate)
        joined = self.norm(joined)
        if site is not None and site.wants("heads"):
            return tap(site, "output", self._by_head(joined, site))
        return tap(site, "output", self.output(joined))

    @property
    def beginning(self) -> float:
        """How much smaller queries begin than keys."""
        return 1.0 if self.scale is None else (self.width // self.heads) ** -0.5

    def _behind(self, past: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, M + L, d) with those of the past in front."""
        assert isinstance(self.projection, nn.Linear), "an encoder choice gives others no memory"
        batch, length, _ = past.shape
        rows = slice(self.width, 3 * self.width)
        bias = self.projection.bias[rows] if self.biased else None
        fused = nn.functional.linear(past, self.projection.weight[rows], bias)
        made = fused.view(batch, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return torch.cat((made[0], key), dim=2), torch.cat((made[1], value), dim=2)

    def _by_head(self, joined: Tensor, site: Site) -> Tensor:
        """What each head writes, (B, H, L, D), and their sum with the bias."""
        width = self.output.weight.shape[0]
        slices = self.output.weight.view(width, self.heads, -1).permute(1, 2, 0)
        by_head = joined.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        written = tap(site, "heads", by_head @ slices)
        total = written.sum(1)
        return total + self.output.bias if self.biased else total


class CrossAttention(Attention):
    """Queries of the states, keys and values of what another stack has read; no positions."""

    def __init__(self, choice: AttentionChoice, shape: HeadShape, norm: Norm) -> None:
        query = nn.Linear(shape.width, shape.inner, choice.bias)
        super().__init__(choice, shape, query, None, norm.within(shape.inner), None)
        self.source = nn.Linear(shape.width, 2 * shape.inner, choice.bias)

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """What the matrices are for."""
        return {
            "projection.weight": Role("matrix", first_part=self.beginning),
            "source.weight": Role("matrix", parts=2),
            "output.weight": Role("matrix", residual=True),
        }

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Tensor | KeysAndValues | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D); the source is projected once where there is a ``past``."""
        assert around.across is not None, "a decoder is told what it reads from"
        read = around.across

        def project() -> tuple[Tensor, Tensor]:
            key, value = self.source(read.states).chunk(2, dim=-1)
            return self._in_heads(key), self._in_heads(value)

        cached = isinstance(past, KeysAndValues)
        key, value = past.once(project) if cached else project()
        query = tap(site, "query", self._in_heads(self.projection(x)))
        key, value = tap(site, "key", key), tap(site, "value", value)
        own = None if noise is None else noise.within(ACROSS)
        call = Call(query, key, value, read.view, self.rate, own, site, None, self.scale)
        return self.written(attend(call, self.kernel), site)

    def _in_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
