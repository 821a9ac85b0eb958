"""A block: a row of sublayers around the residual stream."""

from collections.abc import Iterator
from typing import ClassVar

from torch import Tensor, nn

from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, inside, tap

SUBLAYERS = {"s": "attention", "f": "feed_forward"}
"""The letters of an order string: s mixes places (self-attention), f is a feed-forward."""


class Block(nn.Module):
    """One or two sublayers, each ``norm, mix, drop, add`` in the order that the placement says.

    ``norms`` holds one norm per sublayer; an identity leaves it out.
    """

    names: ClassVar[dict[str, str]] = SUBLAYERS

    def __init__(
        self, sublayers: dict[str, nn.Module], norms: dict[str, nn.Module], pre: bool, rate: float
    ) -> None:
        super().__init__()
        self.sublayers = nn.ModuleDict(sublayers)
        self.norms = nn.ModuleDict(norms)
        self.pre, self.rate = pre, rate

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D); ``past`` (B, M, D) is what this block remembers."""
        x = tap(site, "input", x)
        for number, name in enumerate(self.sublayers):
            x = x + self.change(number, x, around, noise, site, past)
            if not self.pre:
                x = self.norms[name](x)
            if number + 1 < len(self.sublayers):
                x = tap(site, "residual_middle", x)
        return tap(site, "residual", x)

    def change(
        self,
        number: int,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Tensor | None = None,
    ) -> Tensor:
        """What a sublayer adds to the stream x (B, L, D)."""
        name = list(self.sublayers)[number]
        norm, sublayer, where = self.norms[name], self.sublayers[name], inside(site, name)
        inner = tap(site, f"{name}.input", norm(x) if self.pre else x)
        if name == "attention":
            if past is not None and self.pre:
                past = norm(past)
            found = sublayer(inner, around, noise, where, past)
        else:
            found = sublayer(inner, where)
        return dropout(found, self.rate, noise, 2 + number)

    def parameters_of(self, number: int) -> Iterator[nn.Parameter]:
        """The parameters of a sublayer and its norm."""
        name = list(self.sublayers)[number]
        yield from self.sublayers[name].parameters()
        yield from self.norms[name].parameters()
