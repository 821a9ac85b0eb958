"""The way of the states through the blocks: which of them run, and what is made of what they give.

A plan of depth gives the encoder a passage, unless the residual has one of its own; a passage asks
for blocks by their number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertwright.encoder.block import Block
from bertwright.encoder.cache import Past
from bertwright.encoder.kernels.noise import Noise, uniform
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site

Notes = dict[str, Tensor]
"""What is known of a pass beside the states, by name."""

SITE = 65
"""Of the random numbers that leave blocks out."""


@dataclass(frozen=True, eq=False)
class Step:
    """A block at its place in one pass, and what it is told there.

    ``signal`` (L or B x L, D) is added to the states before it; ``recall`` makes of these what the
    block knows of earlier places; ``made`` is what all sublayers so far have made; ``wanted`` are
    the flat places (M,) whose states alone are needed behind it.
    """

    block: Block
    around: Surroundings
    noise: Noise | None = None
    site: Site | None = None
    signal: Tensor | None = None
    recall: Callable[[Tensor], Past] | None = None
    made: list[Tensor] | None = None
    wanted: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The states behind the block, given those before it: (B, L, D) each, or (M, D)."""
        if self.signal is not None:
            x = x + self.signal.to(x.dtype)
        # Values are looked at in what is not compiled.
        run = self.block if self.site is None else self.block.forward
        return run(x, self.around, self.noise, self.site, self._past(x), self.made, self.wanted)

    def change(self, dtype: torch.dtype, number: int, stream: Tensor) -> Tensor:
        """What the sublayer with this number, from 1 on, adds by the stream (B, L, D), computed in
        ``dtype``."""
        past = None if self.recall is None else self._past(stream.to(dtype))
        around, noise, site = self.around, self.noise, self.site
        return self.block.change_in(dtype, number, stream, around, noise, site, past)

    def _past(self, x: Tensor) -> Past | None:
        return None if self.recall is None else self.recall(x)


class Passage(nn.Module):
    """One block after the other.

    In training, where there is noise, each is left out with the probability ``drop`` (Fan et al.
    2020): a function of seed, step and block, so that all rows of a step pass through the same
    blocks. Else every ``every``-th runs.
    """

    narrows: ClassVar[bool] = True
    """Whether nothing but the states it ends with is made of what the last block gives."""

    def __init__(self, drop: float = 0.0, every: int = 1) -> None:
        super().__init__()
        self.drop, self.every = drop, every

    def forward(
        self,
        x: Tensor,
        blocks: Sequence[int],
        step: Callable[[int], Step],
        noise: Noise | None = None,
        real: Tensor | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D) through ``blocks``, or to (M, D) where the last of them narrows;
        ``real`` (B, L) bool is where text stands, None where it is everywhere."""
        for index in self.chosen(blocks, noise):
            x = step(index)(x)
        return x

    def chosen(self, blocks: Sequence[int], noise: Noise | None) -> Sequence[int]:
        """The blocks that run."""
        if noise is None:
            return blocks[:: self.every]
        if self.drop == 0.0:
            return blocks
        place = torch.tensor(blocks, device=noise.seed.device)
        drop = self.drop * (1.0 if noise.strength is None else float(noise.strength))
        drawn: list[float] = uniform(noise, place, SITE).tolist()
        return [index for index, number in zip(blocks, drawn, strict=True) if number >= drop]


class Halting(Passage):
    """Each place passes through blocks until it has had enough (Graves 2016; Dehghani et al. 2019).

    Before every block a place gives the probability to halt behind it. Where those so far come to
    more than 1 - ``epsilon``, and behind the last block in any case, what is missing to 1 takes
    their place. The states are the mean of those behind every block, weighted by these numbers.
    A place that has halted stays as it is, and is still seen; padding never begins.

    Notes ``ponder`` (B, L), the number of blocks and the last weight, and ``halted`` (B, L) bool,
    whether a place halted before it had to.
    """

    narrows: ClassVar[bool] = False
    parameter_roles: ClassVar[dict[str, Role]] = {"unit.bias": Role("gate")}

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.unit = nn.Linear(width, 1)
        self.epsilon = epsilon

    def forward(
        self,
        x: Tensor,
        blocks: Sequence[int],
        step: Callable[[int], Step],
        noise: Noise | None = None,
        real: Tensor | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        going = torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real
        halted, mean = torch.zeros_like(going), torch.zeros_like(x)
        # In float32 at least: the sums of many are compared with 1.
        spent = x.new_zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32))
        ponder = spent
        for index in blocks:
            chance = torch.sigmoid(self.unit(x).squeeze(-1).to(spent.dtype))
            enough = spent + chance > 1 - self.epsilon
            ends = enough if index != blocks[-1] else torch.ones_like(enough)
            weight = torch.where(ends, 1 - spent, chance) * going
            x = torch.where(going[..., None], step(index)(x), x)
            mean = mean + weight[..., None].to(x.dtype) * x
            ponder = ponder + going + weight * ends
            halted = halted | (going & enough) if index != blocks[-1] else halted
            spent = spent + weight
            going = going & ~ends
            # A graph that is exported holds all blocks; what has halted passes them unchanged.
            if not torch.compiler.is_exporting() and not going.any():
                break
        if notes is not None:
            notes |= {"ponder": ponder, "halted": halted}
        return mean
