"""Heads whose weights are not learned (Raganato et al. 2020)."""

from typing import ClassVar, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.encoder.kernels.attention import KernelName, attend
from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers.mixer import InHeads
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import HeadShape, Positions, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap

Pattern = Literal["current", "previous", "next", "left", "right", "start", "end"]

PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


class FixedPatterns(InHeads):
    """Attention in which the first heads look where their pattern says; the others are learned.

    ``current``, ``previous`` and ``next`` look at one place; ``left`` and ``right`` at all beyond
    the neighbour, ``start`` and ``end`` at all of the text, with weights that grow with the cube of
    the place. Where nothing that is seen has a weight, a place looks at itself. The exact weights
    are not settled by the paper's text.
    """

    kind: Literal["fixed-patterns"] = "fixed-patterns"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    kernel: KernelName = "auto"
    patterns: tuple[Pattern, ...] = Field(default=PATTERNS, min_length=1)

    def operations(self, width: int, length: int) -> tuple[float, float]:
        shape = self.shape(width)
        free = max(0, shape.heads - len(self.patterns))
        return 4 * width * (width + free * shape.head_width), 4 * length * width

    def build(self, width: int, positions: Positions, norm: Norm) -> nn.Module:
        return FixedAttention(self, self.shape(width), norm.within(width))


class FixedAttention(nn.Module):
    """A value and an output for every head, queries and keys for the learned ones only.

    A fixed head is one whose scores are the logarithms of its weights.
    """

    parameter_roles: ClassVar[dict[str, Role]] = {
        "learned.weight": Role("matrix", parts=2),
        "output.weight": Role("matrix", residual=True),
    }

    def __init__(self, choice: FixedPatterns, shape: HeadShape, norm: nn.Module) -> None:
        super().__init__()
        self.shape, self.rate = shape, choice.dropout
        self.kernel: KernelName = choice.kernel
        self.patterns = choice.patterns[: shape.heads]
        free = shape.heads - len(self.patterns)
        self.learned = (
            nn.Linear(shape.width, 2 * free * shape.head_width, choice.bias) if free else None
        )
        self.values = nn.Linear(shape.width, shape.width, choice.bias)
        self.norm = norm
        self.output = nn.Linear(shape.width, shape.width, choice.bias)

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D)."""
        assert past is None, "an encoder choice gives this mixer no memory"
        batch, length, width = x.shape
        heads, head_width = self.shape.heads, self.shape.head_width
        query = key = x.new_zeros(batch, heads, length, head_width)
        if self.learned is not None:
            found = self.learned(x).view(batch, length, 2, -1, head_width).permute(2, 0, 3, 1, 4)
            if around.rotation is not None:
                found = rotate(found, around.rotation)
            fixed = x.new_zeros(2, batch, len(self.patterns), length, head_width)
            query, key = torch.cat((fixed, found), dim=2).unbind(0)
        query, key = tap(site, "query", query), tap(site, "key", key)
        value = self.values(x).view(batch, length, heads, head_width).transpose(1, 2)
        value = tap(site, "value", value)
        bias = self._bias(x, around)
        call = Call(query, key, value, around.view, self.rate, noise, site, bias)
        context = tap(site, "context", attend(call, self.kernel))
        joined = context.transpose(1, 2).reshape(batch, length, width)
        return tap(site, "output", self.output(self.norm(joined)))

    def _bias(self, x: Tensor, around: Surroundings) -> Tensor:
        """(B or 1, H, L, L): the logarithms of the weights, 0 for heads that are learned."""
        length = x.shape[1]
        place = torch.arange(length, device=x.device)
        seen = around.view.mask
        if around.view.shape == "causal":
            seen = (place[:, None] >= place)[None, None]
        if seen is None:
            seen = torch.ones(1, 1, length, length, dtype=torch.bool, device=x.device)
        seen = seen.expand(-1, self.shape.heads, -1, -1)[:, : len(self.patterns)]
        weights = torch.cat(
            [pattern_weights(p, place, seen[:, n : n + 1]) for n, p in enumerate(self.patterns)],
            dim=1,
        )
        itself = torch.eye(length, device=x.device)
        for instead in (itself * seen, seen.float()):
            weights = torch.where(weights.sum(-1, keepdim=True) == 0, instead, weights)
        free = self.shape.heads - len(self.patterns)
        logarithms = torch.log(weights)
        # Near 0 for those that count, where bfloat16 is fine; what sees nothing has none at all.
        logarithms = logarithms - logarithms.amax(-1, keepdim=True).clamp(min=0.0)
        return nn.functional.pad(logarithms, (0, 0, 0, 0, 0, free)).to(x.dtype)


def pattern_weights(pattern: Pattern, place: Tensor, seen: Tensor) -> Tensor:
    """The weights of a pattern before they are normalised, (B or 1, 1, L, L), query by key.

    A key counts from the first, or from the last, of those that its query sees.
    """
    query, key = place[:, None], place[None, :]
    from_start = seen.cumsum(-1).float()
    from_end = from_start[..., -1:] + 1 - from_start
    return (
        seen
        * {
            "current": key == query,
            "previous": key == query - 1,
            "next": key == query + 1,
            "left": from_start**3 * (key <= query - 2),
            "right": from_end**3 * (key >= query + 2),
            "start": from_end**3,
            "end": from_start**3,
        }[pattern]
    )
