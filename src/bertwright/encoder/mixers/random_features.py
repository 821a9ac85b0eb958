"""Attention whose time grows with the length, not with its square (Choromanski et al. 2021)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers.mixer import InHeads
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import HeadShape, Positions, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap
from bertwright.randomness import key

CHUNK = 64
"""Places that are answered at once where a place sees only what stands before it."""

FLOOR = 1e-6
"""Added to every feature, so that no sum of them is 0."""


class RandomFeatures(InHeads):
    """exp(q . k) by the product of ``features`` positive random features of q and of k (FAVOR+).

    ``function`` "relu" is another kernel than exp, relu(w . q) relu(w . k) (section 2.2). Features
    are drawn once, orthogonal in groups, from ``seed``, and all blocks have the same. Rules that
    see all, or all that stands before, can be computed so; no others, and no dropout of weights.
    """

    kind: Literal["random-features"] = "random-features"
    features: int = Field(default=256, ge=1, le=65_536)
    function: Literal["exponential", "relu"] = "exponential"
    seed: int = Field(default=0, ge=0)

    any_rule: ClassVar[bool] = False

    def operations(self, width: int, length: int) -> tuple[float, float]:
        heads = self.shape(width).heads
        return 8 * width**2 + 8 * width * self.features + 2 * heads * self.features, 0.0

    def build(self, width: int, positions: Positions, norm: Norm) -> nn.Module:
        return FeatureAttention(self, self.shape(width), norm.within(width))


class FeatureAttention(nn.Module):
    """As attention, but that keys and values are summed before any query is answered."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "projection.weight": Role("matrix", parts=3),
        "output.weight": Role("matrix", residual=True),
    }

    def __init__(self, choice: RandomFeatures, shape: HeadShape, norm: nn.Module) -> None:
        super().__init__()
        self.shape, self.function = shape, choice.function
        self.projection = nn.Linear(shape.width, 3 * shape.width, choice.bias)
        self.norm = norm
        self.output = nn.Linear(shape.width, shape.width, choice.bias)
        self._drawn = orthogonal_features(choice.features, shape.head_width, choice.seed)

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
        fused = self.projection(x).view(batch, length, 3, self.shape.heads, -1)
        query, key, value = fused.permute(2, 0, 3, 1, 4).unbind(0)
        if around.rotation is not None:
            query, key = rotate(query, around.rotation), rotate(key, around.rotation)
        query, key = tap(site, "query", query), tap(site, "key", key)
        value = tap(site, "value", value)
        query, key, value = (
            t.to(torch.promote_types(t.dtype, torch.float32)) for t in (query, key, value)
        )
        context = self._context(query, key, value, around, site)
        context = tap(site, "context", context.to(x.dtype))
        joined = context.transpose(1, 2).reshape(batch, length, width)
        return tap(site, "output", self.output(self.norm(joined)))

    def _context(
        self, query: Tensor, key: Tensor, value: Tensor, around: Surroundings, site: Site | None
    ) -> Tensor:
        view = around.view
        assert view.order is not None, "an encoder choice allows no other rule"
        drawn = self._drawn.to(query)
        if self.function == "relu":
            asking, asked = relu_features(query, drawn), relu_features(key, drawn)
        else:
            asking, asked = features(query, drawn, (-1,)), features(key, drawn, (-2, -1))
        if view.real is not None:
            asked = asked * view.real[:, None, :, None]
        if site is not None and site.wants("weights"):
            weights = asking @ asked.transpose(-1, -2)
            weights = weights.tril() if view.order == "causal" else weights
            return tap(site, "weights", shared(weights, weights.sum(-1, keepdim=True))) @ value
        if view.order == "causal":
            return causal_sums(asking, asked, value)
        sums = torch.einsum("bhlm,bhld->bhmd", asked, value)
        total = torch.einsum("bhlm,bhm->bhl", asking, asked.sum(2))
        return shared(torch.einsum("bhlm,bhmd->bhld", asking, sums), total[..., None])


def orthogonal_features(number: int, width: int, seed: int) -> Tensor:
    """(number, width): Gaussian rows, orthogonal in groups of ``width``."""
    generator = torch.Generator().manual_seed(key(seed, "random features") >> 1)
    groups: list[Tensor] = []
    for _ in range(-(-number // width)):
        square = torch.randn(width, width, generator=generator, device="cpu")
        other = torch.randn(width, width, generator=generator, device="cpu")
        lengths = other.norm(dim=1, keepdim=True)
        groups.append(torch.linalg.qr(square).Q.T * lengths)
    return torch.cat(groups)[:number]


def features(x: Tensor, drawn: Tensor, together: tuple[int, ...]) -> Tensor:
    """Of queries or keys x (B, H, L, d): (B, H, L, m), all positive.

    exp(w . x - |x|^2 / 2) for every row w of ``drawn``, with x over the fourth root of its width.
    What is subtracted against overflow cancels if it is one number for all keys of a head; queries
    may each have their own. ``together`` are the axes over which it is the largest exponent.
    """
    scaled = x * x.shape[-1] ** -0.25
    exponent = scaled @ drawn.T - scaled.square().sum(-1, keepdim=True) / 2
    largest = exponent.detach().amax(together, keepdim=True)
    return torch.exp(exponent - largest) + FLOOR


def relu_features(x: Tensor, drawn: Tensor) -> Tensor:
    """Of queries or keys x (B, H, L, d): (B, H, L, m), relu(w . x) for every row w of ``drawn``."""
    return torch.relu(x * x.shape[-1] ** -0.25 @ drawn.T) + FLOOR


def causal_sums(asking: Tensor, asked: Tensor, value: Tensor) -> Tensor:
    """Every query's weighted mean over the values up to its own place, chunk by chunk."""
    sums = value.new_zeros(*asked.shape[:2], asked.shape[3], value.shape[3] + 1)
    ones = value.new_ones(*value.shape[:3], 1)
    counted = torch.cat((value, ones), dim=-1)
    found: list[Tensor] = []
    given = (asking, asked, counted)
    # What is exported is for rows of any length: all of a row is one chunk.
    whole = torch.compiler.is_exporting()
    chunks = [given] if whole else zip(*(t.split(CHUNK, dim=2) for t in given), strict=True)
    for q, k, v in chunks:
        found.append(q @ sums + (q @ k.transpose(-1, -2)).tril() @ v)
        sums = sums + k.transpose(-1, -2) @ v
    answers = torch.cat(found, dim=2)
    return shared(answers[..., :-1], answers[..., -1:])


def shared(sums: Tensor, total: Tensor) -> Tensor:
    """Sums over their total, which is 0 where a place sees nothing: there 0 as well."""
    return sums / total.masked_fill(total == 0, 1)
