"""Blocks that work at a width of their own, between a way in and a way out (Sun et al. 2020)."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Settings
from bertwright.encoder.block import Block
from bertwright.encoder.cache import Past
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.norms import NoNorm, Norm
from bertwright.encoder.roles import Role
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, tap


class Bottleneck(Settings):
    """The sublayers of every block are ``width`` wide.

    A block leads the states of the encoder to that width for what is added to within, and once more
    for its queries and keys, which share that; where nothing is ``shared`` they read the states as
    they are, as its values do. What it ends with is led back and added to them (section 3.1, figure
    1). Within it may be wider than without, as in the teacher there.
    """

    width: int = Field(default=128, ge=1, le=65_536)
    shared: bool = True

    def operations(self, outer: int) -> float:
        """Floating-point operations of a block per token beside those of its sublayers."""
        ways, reading = (3, 1) if self.shared else (2, 3)
        return 2 * self.width * (ways * outer + reading * (outer - self.width))

    def projection(self, outer: int, bias: bool, norm: Norm) -> nn.Module:
        """What makes queries, keys and values of the states of the encoder."""
        if not self.shared:
            return nn.Linear(outer, 3 * self.width, bias)
        return OuterProjection(outer, self.width, bias, norm)

    def ways(self, outer: int, norm: Norm) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The way in, the way out, and the norm behind it."""
        out = nn.Linear(self.width, outer)
        return Narrowed(outer, self.width, norm), out, norm.build(outer)


class Narrowed(nn.Module):
    """norm(dense(x)): (B, L, D) to (B, L, d)."""

    def __init__(self, outer: int, inner: int, norm: Norm) -> None:
        super().__init__()
        self.dense = nn.Linear(outer, inner)
        self.norm = norm.build(inner)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.dense(x))

    @torch.no_grad()
    def fold(self) -> None:
        """Make a gain and a bias behind the matrix its own, where the norm is nothing else."""
        if isinstance(self.norm, NoNorm):
            self.dense.weight.mul_(self.norm.weight[:, None])
            self.dense.bias.mul_(self.norm.weight).add_(self.norm.bias)
            self.norm = nn.Identity()


class OuterProjection(nn.Module):
    """Queries and keys of what is narrowed for them, values of all of it: (B, L, D) to
    (B, L, 3 d)."""

    parameter_roles: ClassVar[dict[str, Role]] = {"query_key.weight": Role("matrix", parts=2)}

    def __init__(self, outer: int, inner: int, bias: bool, norm: Norm) -> None:
        super().__init__()
        self.shared = Narrowed(outer, inner, norm)
        self.query_key = nn.Linear(inner, 2 * inner, bias)
        self.value = nn.Linear(outer, inner, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.query_key(self.shared(x)), self.value(x)), dim=-1)


class BottleneckBlock(Block):
    """A block within a way in, a way out, and the states of the encoder around both."""

    parameter_roles: ClassVar[dict[str, Role]] = {"out.weight": Role("matrix", residual=True)}

    def __init__(self, block: Block, ways: tuple[nn.Module, nn.Module, nn.Module]) -> None:
        sublayers, norms = dict(block.sublayers.items()), dict(block.norms.items())
        super().__init__(sublayers, norms, {}, block.pre, block.drop, block.join, block.written)
        self.enter, self.out, self.norm = ways

    @property
    def narrows(self) -> bool:
        return False

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Past | None = None,
        made: list[Tensor] | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D)."""
        x = tap(site, "input", x)
        inner = self.through(self.enter(x), around, noise, site, outer=x)
        change = self.drop(self.out(inner), noise, 2 + len(self.sublayers))
        return tap(site, "residual", self.norm(self.join(x, change)))
