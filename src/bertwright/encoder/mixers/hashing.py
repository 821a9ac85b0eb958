"""Attention among places that hash alike (Kitaev et al. 2020, section 2)."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from bertwright.encoder.kernels.noise import Noise, dropout, gaussian
from bertwright.encoder.mixers.mixer import InHeads
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import HeadShape, Positions, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap
from bertwright.encoder.visibility import View

DROPOUT_SITE, HASHING_SITE = 1, 8
"""Which random numbers of a block these are."""

ITSELF = -1e5
"""The score of a place with itself: it counts where nothing else is seen."""

# Legend: H heads, d width of a head, R rounds, C chunks of m places, P = C m places of a row that
# is filled up.


class Hashing(InHeads):
    """Attention with one projection for queries and keys, to the places of the same bucket (LSH).

    In each of ``rounds`` a vector falls into one of ``buckets`` by the nearest of as many random
    directions. Of its bucket a place sees the ``chunk`` places before it (and after it, where that
    is allowed). The directions depend on the step and the block while a model is trained, and are
    otherwise drawn from ``seed``.

    The paper cuts the places, sorted by bucket, into chunks, and a place sees its chunk and the one
    before. There what stands later moves the borders of chunks, and so tells something of itself.
    """

    kind: Literal["hashing"] = "hashing"
    bias: bool = False
    dropout: float = 0.0
    rounds: int = Field(default=1, ge=1)
    buckets: int = Field(default=64, ge=1)
    chunk: int = Field(default=64, ge=1)
    seed: int = Field(default=0, ge=0)

    any_rule: ClassVar[bool] = False

    @model_validator(mode="after")
    def _directions_in_pairs(self) -> Self:
        if self.buckets > 1 and self.buckets % 2:
            raise ValueError(f"buckets are directions and their opposites, not {self.buckets}")
        return self

    def shape(self, width: int) -> HeadShape:
        heads = self.heads or max(1, width // self.head_width)
        return HeadShape(heads, self.head_width, width)

    def operations(self, width: int, length: int) -> tuple[float, float]:
        shape = self.shape(width)
        inner = shape.heads * shape.head_width
        hashed = inner * self.rounds * (self.buckets if self.buckets > 1 else 0)
        # Each place meets those of two chunks in every round, where it sees what stands before.
        return 6 * width * inner + hashed + 8 * self.chunk * inner * self.rounds, 0.0

    @property
    def drops(self) -> bool:
        """Directions are drawn anew in every step, whatever is dropped."""
        return True

    def build(self, width: int, positions: Positions, norm: Norm) -> nn.Module:
        shape = self.shape(width)
        return HashingAttention(self, shape, norm.within(shape.heads * shape.head_width))


class HashingAttention(nn.Module):
    """Sort, cut, attend within chunks, put back; the rounds weighed by what they found."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "projection.weight": Role("matrix", parts=2),
        "output.weight": Role("matrix", residual=True),
    }

    def __init__(self, choice: Hashing, shape: HeadShape, norm: nn.Module) -> None:
        super().__init__()
        self.choice, self.shape = choice, shape
        inner = shape.heads * shape.head_width
        self.projection = nn.Linear(shape.width, 2 * inner, choice.bias)
        self.norm = norm
        self.output = nn.Linear(inner, shape.width, choice.bias)

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
        batch, length, _ = x.shape
        heads, width = self.shape.heads, self.shape.head_width
        fused = self.projection(x).view(batch, length, 2, heads, width)
        shared, value = fused.permute(2, 0, 3, 1, 4).unbind(0)
        if around.rotation is not None:
            shared = rotate(shared, around.rotation)
        shared, value = tap(site, "query", shared), tap(site, "value", value)
        wide = torch.promote_types(x.dtype, torch.float32)
        context = self._context(shared.to(wide), value.to(wide), around.view, noise, site)
        context = tap(site, "context", context.to(x.dtype))
        joined = context.transpose(1, 2).reshape(batch, length, heads * width)
        return tap(site, "output", self.output(self.norm(joined)))

    def _context(
        self, shared: Tensor, value: Tensor, view: View, noise: Noise | None, site: Site | None
    ) -> Tensor:
        assert view.order is not None, "an encoder choice allows no other rule"
        length = shared.shape[2]
        real = shared.new_ones(1, length, dtype=torch.bool) if view.real is None else view.real
        missing = -length % self.choice.chunk
        real = pad(real.expand(len(shared), -1), (0, missing))
        shared, value = (pad(t, (0, 0, 0, missing)) for t in (shared, value))
        buckets = self._buckets(shared, noise)
        buckets = buckets.masked_fill(~real[:, None, None], self.choice.buckets)
        order = Order(torch.argsort(buckets, dim=-1, stable=True), self.choice.chunk)
        causal = view.order == "causal"
        query = order.cut(shared)
        key, found = beside(normalize(query, dim=-1), causal), beside(order.cut(value), causal)
        scores = query @ key.transpose(-1, -2) * self.shape.head_width**-0.5
        hidden, itself = order.hidden(buckets, real, causal)
        scores = scores.masked_fill(hidden, -torch.inf).masked_fill(itself, ITSELF)
        total = torch.logsumexp(scores, dim=-1, keepdim=True)
        weights = torch.exp(scores - total)
        of_round = torch.softmax(order.put_back(total), dim=2)
        if site is not None and site.wants("weights"):
            dense = order.dense(weights, of_round, causal)[..., :length, :length]
            return tap(site, "weights", dense) @ value[:, :, :length]
        weights = dropout(weights, self.choice.dropout, noise, DROPOUT_SITE)
        return (of_round * order.put_back(weights @ found)).sum(2)[:, :, :length]

    def _buckets(self, shared: Tensor, noise: Noise | None) -> Tensor:
        """The bucket of every place in every round, (B, H, R, P) int64."""
        rounds, buckets = self.choice.rounds, self.choice.buckets
        if buckets == 1:
            batch, heads, places, _ = shared.shape
            return shared.new_zeros(batch, heads, rounds, places, dtype=torch.int64)
        shape = (self.shape.heads, rounds, self.shape.head_width, buckets // 2)
        directions = gaussian(shape, noise, self.choice.seed, HASHING_SITE, shared)
        turned = shared.detach()[:, :, None] @ directions
        return torch.cat((turned, -turned), dim=-1).argmax(-1)


class Order:
    """Places in the order of their buckets: ``places`` (B, H, R, P), cut into chunks of ``chunk``.

    What has been cut is (B, H, R, C, m, ...).
    """

    def __init__(self, places: Tensor, chunk: int) -> None:
        self.places, self.chunk = places, chunk

    def cut(self, values: Tensor) -> Tensor:
        """Values (B, H, P, w), the same in all rounds."""
        index = self.places[..., None].expand(*self.places.shape, values.shape[-1])
        values = values[:, :, None].expand(-1, -1, self.places.shape[2], -1, -1)
        return values.gather(3, index).unflatten(3, (-1, self.chunk))

    def put_back(self, values: Tensor) -> Tensor:
        """Values (B, H, R, C, m, w) in the order of the row, (B, H, R, P, w)."""
        flat = values.flatten(3, 4)
        index = torch.argsort(self.places, dim=-1)[..., None]
        return flat.gather(3, index.expand(-1, -1, -1, -1, flat.shape[-1]))

    def hidden(self, buckets: Tensor, real: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """Which of the places beside each are hidden, and which is the place itself; each
        (B, H, R, C, m, 2 m or 3 m) bool."""
        bucket = self._by_chunk(buckets.gather(-1, self.places))
        is_real = real[:, None, None].expand(self.places.shape).gather(-1, self.places)
        turn = self._by_chunk(torch.arange(self.places.shape[-1], device=real.device))
        turn = turn.expand(bucket.shape)
        # Beyond the ends stands nothing real. Within a bucket, distance in this order is how many
        # places of the bucket lie between.
        distance = turn[..., None] - _row(beside(turn[..., None], causal))
        hidden = ~_row(beside(self._by_chunk(is_real)[..., None], causal))
        hidden = hidden | (bucket[..., None] != _row(beside(bucket[..., None], causal)))
        hidden = hidden | (distance.abs() > self.chunk)
        itself = _row(beside(torch.ones_like(turn, dtype=torch.bool)[..., None], causal))
        return (hidden | (distance < 0) if causal else hidden), itself & (distance == 0)

    def dense(self, weights: Tensor, of_round: Tensor, causal: bool) -> Tensor:
        """The weights (B, H, R, C, m, 2 m or 3 m) of all rounds as one (B, H, P, P)."""
        share = self._by_chunk(of_round[..., 0].gather(-1, self.places))[..., None]
        number = self.places.shape[-1]
        own = self._by_chunk(self.places)[..., None]
        index = (own * number + _row(beside(own, causal))).flatten(2)
        flat = weights.new_zeros(*weights.shape[:2], number * number)
        flat = flat.scatter_add(2, index, (weights * share).flatten(2))
        return flat.unflatten(2, (number, number))

    def _by_chunk(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (-1, self.chunk))


def beside(values: Tensor, causal: bool) -> Tensor:
    """Chunks (B, H, R, C, m, w) with the one before each, and the one after unless all is causal:
    (B, H, R, C, 2 m or 3 m, w). Beyond the ends stand zeros."""
    padded = pad(values, (0, 0, 0, 0, 1, 0 if causal else 1))
    number = values.shape[3]
    parts = [padded[:, :, :, first : first + number] for first in range(2 if causal else 3)]
    return torch.cat(parts, dim=4)


def _row(values: Tensor) -> Tensor:
    """(..., n, 1) as (..., 1, n)."""
    return values.transpose(-1, -2)
