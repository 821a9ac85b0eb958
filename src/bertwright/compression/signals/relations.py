"""How places of a teacher's layer relate: queries to queries, keys to keys, values to values (Wang
et al. 2020, 2021: MiniLM), which asks for no like width and no like number of heads."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.compression.signals.signal import Comparison, Heard, Signal, Sizes
from bertwright.encoder.choice import EncoderChoice
from bertwright.errors import UserError

PARTS = ("query", "key", "value")


class Relations(Signal):
    """KL(teacher || student) of softmax(X X^T / sqrt(d)) within a row, for X the queries, the keys
    and the values of the last layer, in the mean over its places and over ``heads``, into which X
    is cut anew; the mean over rows.

    ``layer`` is that of the teacher, None its last: of a deep one a layer below teaches more (2021,
    section 4.3).
    """

    kind: Literal["relations"] = "relations"
    layer: int | None = Field(default=None, ge=1, le=1_024)
    heads: int = Field(default=12, ge=1, le=4_096)

    def between(self, student: EncoderChoice, teacher: EncoderChoice) -> Comparison:
        own, other = len(student.depth.orders()), len(teacher.depth.orders())
        if not own or not other:
            raise UserError("relations: without blocks there are no queries: take another method")
        layer = self.layer or other
        if layer > other:
            raise UserError(f"relations: the teacher has {other} layers, and no layer {layer}")
        for choice, block in ((student, own - 1), (teacher, layer - 1)):
            inner = choice.mixer_at(block).shape(choice.inner_widths[block][1]).inner
            if inner % self.heads:
                raise UserError(
                    f"relations: queries that are {inner} wide cannot be cut into {self.heads} "
                    f"heads: choose another method, or one of your own that says heads of relations"
                )
        return OfRelations(self.heads, own - 1, layer - 1)


class OfRelations(Comparison):
    """Of :class:`Relations`, in two blocks."""

    def __init__(self, heads: int, own: int, other: int) -> None:
        super().__init__()
        self.heads = heads
        self.sites = [f"blocks.{own}.attention.{part}" for part in PARTS]
        self.other_sites = [f"blocks.{other}.attention.{part}" for part in PARTS]

    def count(self, sizes: Sizes) -> float:
        return sizes.rows

    def forward(self, heard: Heard) -> Tensor:
        total = heard.outputs.new_zeros(())
        for site, other_site in zip(self.sites, self.other_sites, strict=True):
            own = self._relation(heard.own[site], heard.real)
            others = self._relation(heard.others[other_site], heard.real)
            apart = (others.exp() * (others - own)).sum(-1)
            apart = apart.masked_fill(~heard.real[:, None, :], 0.0).sum((1, 2))
            total = total + (apart / (heard.real.sum(1).clamp(min=1) * self.heads)).sum()
        return total

    def _relation(self, vectors: Tensor, real: Tensor) -> Tensor:
        """(B, H, L, d) to log probabilities (B, heads, L, L)."""
        cut = vectors.float().transpose(1, 2).flatten(2).unflatten(2, (self.heads, -1))
        cut = cut.transpose(1, 2)
        scores = torch.matmul(cut, cut.transpose(-1, -2)) * cut.shape[-1] ** -0.5
        return scores.masked_fill(~real[:, None, None, :], -1e9).log_softmax(-1)
