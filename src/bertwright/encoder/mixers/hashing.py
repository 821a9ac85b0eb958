"""Attention among places that hash alike (Kitaev et al. 2020, section 2)."""

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from bertwright.encoder.kernels.attention import attend
from bertwright.encoder.kernels.call import DROPOUT_SITE, Call
from bertwright.encoder.kernels.noise import Noise, dropout, gaussian
from bertwright.encoder.mixers.mixer import InHeads
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import HeadShape, Positions, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap
from bertwright.encoder.visibility import View

HASHING_SITE = 8
"""Which random numbers of a block directions are drawn with."""

ITSELF = -1e5
"""The score of a place with itself: it counts where nothing else is seen."""

# Legend: H heads, d width of a head, R rounds, C chunks of m places, P = C m places of a row that
# is filled up.


class Hashing(InHeads):
    """Attention with one projection for queries and keys, to the places of the same bucket (LSH).

    Keys have the length 1, and the scores are not divided by the root of the width (so released).

    In each of ``rounds`` a vector falls into one of ``buckets`` by the nearest of as many random
    directions. Of its bucket a place sees the ``chunk`` places before it (and after it, where that
    is allowed). The directions depend on the step and the block while a model is trained, and are
    otherwise drawn from ``seed``.

    The paper cuts the places, sorted by bucket, into chunks, and a place sees its chunk and the one
    before. There what stands later moves the borders of chunks, and so tells something of itself.
    """

    kind: Literal["hashing"] = "hashing"
    bias: bool = False
    dropout: float = Field(default=0.0, ge=0, lt=1)
    rounds: int = Field(default=1, ge=1, le=1_024)
    buckets: int = Field(default=64, ge=1, le=1 << 20)
    chunk: int = Field(default=64, ge=1, le=1 << 20)
    seed: int = Field(default=0, ge=0)

    any_rule: ClassVar[bool] = False
    draws: ClassVar[bool] = True

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
        inner = shape.inner
        hashed = inner * self.rounds * (self.buckets if self.buckets > 1 else 0)
        if self.meets_all(length):
            return 6 * width * inner + hashed, 4 * length * inner
        # Each place meets those of two chunks in every round, where it sees what stands before.
        return 6 * width * inner + hashed + 8 * self.chunk * inner * self.rounds, 0.0

    def meets_all(self, length: int) -> bool:
        """Whether a row has no more places than the chunks that one of them meets in all rounds."""
        return length <= 2 * self.chunk * self.rounds

    def build(self, width: int, positions: Positions, norm: Norm) -> nn.Module:
        shape = self.shape(width)
        return HashingAttention(self, shape, norm.within(shape.inner))


class HashingAttention(nn.Module):
    """Sort, cut, attend within chunks, put back; the rounds weighed by what they found."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "projection.weight": Role("matrix", parts=2),
        "output.weight": Role("matrix", residual=True),
    }

    def __init__(self, choice: Hashing, shape: HeadShape, norm: nn.Module) -> None:
        super().__init__()
        self.choice, self.shape = choice, shape
        inner = shape.inner
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
        # Weighed in float32 at least, multiplied as the rest of the block.
        wide = torch.promote_types(x.dtype, torch.float32)
        context = self._context(shared.to(wide), value, around.view, noise, site)
        context = tap(site, "context", context.to(x.dtype))
        joined = context.transpose(1, 2).reshape(batch, length, heads * width)
        return tap(site, "output", self.output(self.norm(joined)))

    def _context(
        self, shared: Tensor, value: Tensor, view: View, noise: Noise | None, site: Site | None
    ) -> Tensor:
        assert view.order is not None, "an encoder choice allows no other rule"
        length, dtype = shared.shape[2], value.dtype
        # For rows of any length there is the one graph of that, which is the definition.
        if torch.compiler.is_exporting() or self.choice.meets_all(length):
            return self._among_all(shared, value, view, noise, site)
        missing = -length % self.choice.chunk
        shared, value = (pad(t, (0, 0, 0, missing)) for t in (shared, value))
        buckets = self._buckets(shared.to(dtype), noise)
        if missing or view.real is not None:
            real = shared.new_ones(1, length, dtype=torch.bool) if view.real is None else view.real
            filled = ~pad(real, (0, missing))
            buckets = self._alone(buckets, filled)
        causal = view.order == "causal"
        order = Order(buckets, self.choice.chunk, causal)
        query = order.cut(shared)
        key = order.beside(normalize(query, dim=-1)).to(dtype)
        scores = (query.to(dtype) @ key.transpose(-1, -2)).to(shared.dtype)
        scores = scores.masked_fill(order.hidden, -torch.inf).masked_fill(order.itself, ITSELF)
        # Divided by their sum only where there are fewer of them, behind the product.
        highest = scores.detach().amax(dim=-1, keepdim=True)
        weights = torch.exp(scores - highest)
        sums = weights.sum(dim=-1, keepdim=True)
        of_round = torch.softmax(order.put_back(highest + torch.log(sums)), dim=2)
        if site is not None and site.wants("weights"):
            dense = order.dense(weights / sums, of_round)[..., :length, :length]
            return tap(site, "weights", dense) @ value[:, :, :length].to(dense.dtype)
        weights = dropout(weights, self.choice.dropout, noise, DROPOUT_SITE)
        found = (weights.to(dtype) @ order.beside(order.cut(value))) / sums
        return (of_round * order.put_back(found)).sum(2)[:, :, :length]

    def _among_all(
        self, shared: Tensor, value: Tensor, view: View, noise: Noise | None, site: Site | None
    ) -> Tensor:
        """The same where all places are no more than those of the chunks: one softmax over all of
        them, in which each counts as often as there are rounds in which it is seen."""
        buckets = self._buckets(shared.to(value.dtype), noise)
        if view.real is not None:
            buckets = self._alone(buckets, ~view.real)
        turns = _inverse(_sorted(buckets)).int()
        buckets = buckets.int()
        distance = turns[..., None] - turns[..., None, :]
        far = _far(distance, self.choice.chunk, view.order == "causal")
        seen = (buckets[..., None] == buckets[..., None, :]) & ~far
        times = torch.arange(self.choice.rounds + 1, dtype=shared.dtype, device=shared.device)
        itself = torch.eye(shared.shape[2], dtype=torch.bool, device=shared.device)
        bias = torch.where(itself, ITSELF, torch.log(times)[seen.sum(2)])
        query, key = shared.to(value.dtype), normalize(shared, dim=-1).to(value.dtype)
        rate = self.choice.dropout
        call = Call(query, key, value, View("all"), rate, noise, site, bias, scale=1.0)
        return attend(call, "auto")

    def _alone(self, buckets: Tensor, filled: Tensor) -> Tensor:
        """Each place that holds nothing, of ``filled`` (B or 1, P), in a bucket of its own."""
        own = self.choice.buckets + torch.arange(buckets.shape[-1], device=buckets.device)
        return torch.where(filled[:, None, None], own, buckets)

    def _buckets(self, shared: Tensor, noise: Noise | None) -> Tensor:
        """The bucket of every place in every round, (B, H, R, P) int64."""
        rounds, buckets = self.choice.rounds, self.choice.buckets
        if buckets == 1:
            batch, heads, places, _ = shared.shape
            return shared.new_zeros(batch, heads, rounds, places, dtype=torch.int64)
        shape = (self.shape.heads, rounds, self.shape.head_width, buckets // 2)
        directions = gaussian(shape, noise, self.choice.seed, HASHING_SITE, shared)
        turned = shared.detach()[:, :, None] @ directions
        nearest = turned.abs().argmax(dim=-1)
        opposite = turned.gather(-1, nearest[..., None])[..., 0] < 0
        return nearest + buckets // 2 * opposite


class Order:
    """Places in the order of their ``buckets`` (B, H, R, P), cut into chunks of ``chunk`` places.

    What has been cut is (B, H, R, C, m, ...). Beside each chunk lies the one before it, and the one
    after it unless all is ``causal``: (B, H, R, C, k m, ...), k 2 or 3.
    """

    def __init__(self, buckets: Tensor, chunk: int, causal: bool) -> None:
        self.places = _sorted(buckets)
        self.turns = _inverse(self.places)
        self.chunk, self.chunks_beside = chunk, 2 if causal else 3
        bucket = self._by_chunk(buckets.gather(-1, self.places))[..., None]
        # Within a bucket, distance in this order is how many of its places lie between.
        turn = torch.arange(self.chunks_beside * chunk, device=buckets.device)
        distance = turn[:chunk, None] + chunk - turn
        self.itself = distance == 0
        """(m, k m) bool: which of those beside a place is the place itself."""
        self.hidden = _far(distance, chunk, causal) | (
            bucket != _row(self.beside(bucket, nothing=-1))
        )
        """(B, H, R, C, m, k m) bool: which of those beside a place it does not see."""

    def cut(self, values: Tensor) -> Tensor:
        """Values (B, H, P, w), the same in all rounds."""
        found = Rearranged.apply(values[:, :, None], self.places, self.turns)
        return found.unflatten(3, (-1, self.chunk))

    def put_back(self, values: Tensor) -> Tensor:
        """Values (B, H, R, C, m, w) in the order of the row, (B, H, R, P, w)."""
        return Rearranged.apply(values.flatten(3, 4), self.turns, self.places)

    def beside(self, values: Tensor, nothing: float = 0.0) -> Tensor:
        """Chunks (B, H, R, C, m, w) with those beside them, ``nothing`` beyond the ends."""
        padded = pad(values, (0, 0, 0, 0, 1, self.chunks_beside - 2), value=nothing)
        number = values.shape[3]
        parts = [padded[:, :, :, n : n + number] for n in range(self.chunks_beside)]
        return torch.cat(parts, dim=4)

    def dense(self, weights: Tensor, of_round: Tensor) -> Tensor:
        """The weights (B, H, R, C, m, k m) of all rounds as one (B, H, P, P)."""
        share = self._by_chunk(of_round[..., 0].gather(-1, self.places))[..., None]
        number = self.places.shape[-1]
        own = self._by_chunk(self.places)[..., None]
        index = (own * number + _row(self.beside(own))).flatten(2)
        flat = weights.new_zeros(*weights.shape[:2], number * number)
        flat = flat.scatter_add(2, index, (weights * share).flatten(2))
        return flat.unflatten(2, (number, number))

    def _by_chunk(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (-1, self.chunk))


class Rearranged(torch.autograd.Function):
    """Vectors (B, H, R or 1, P, w) in the order of ``places`` (B, H, R, P): (B, H, R, P, w).

    The gradient of a gather adds up place by place; here it is a gather by ``turns``, the inverse.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, places: Tensor, turns: Tensor) -> Tensor:
        ctx.save_for_backward(turns)
        ctx.one_for_all = values.shape[2] == 1
        return _taken(values, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        [turns] = ctx.saved_tensors
        found = _taken(gradients[0], turns)
        return (found.sum(2, keepdim=True) if ctx.one_for_all else found), None, None


def _taken(values: Tensor, places: Tensor) -> Tensor:
    batch, heads, own_rounds, number, width = values.shape
    first = torch.arange(batch * heads * own_rounds, device=places.device) * number
    index = places + first.view(batch, heads, own_rounds, 1)
    flat = values.reshape(-1, width).index_select(0, index.flatten())
    return flat.view(*places.shape, width)


def _sorted(buckets: Tensor) -> Tensor:
    """The places of ``buckets`` (..., P) bucket by bucket, in each as they stand in the row."""
    number = buckets.shape[-1]
    return torch.argsort(buckets * number + torch.arange(number, device=buckets.device), dim=-1)


def _inverse(places: Tensor) -> Tensor:
    """Where in the order ``places`` (..., P) each place stands."""
    turns = torch.arange(places.shape[-1], device=places.device).expand_as(places)
    return torch.empty_like(places).scatter_(-1, places, turns)


def _far(distance: Tensor, chunk: int, causal: bool) -> Tensor:
    """Whether a place is not seen at so many places before a query, in the order of a bucket."""
    return (distance < 0) | (distance > chunk) if causal else distance.abs() > chunk


def _row(values: Tensor) -> Tensor:
    """(..., n, 1) as (..., 1, n)."""
    return values.transpose(-1, -2)
