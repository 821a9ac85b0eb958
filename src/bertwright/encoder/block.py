"""A block: a row of sublayers around the residual stream."""

from typing import ClassVar

from torch import Tensor, nn

from bertwright.encoder.cache import Past
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
        past: Past | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D); ``past`` is what this block knows of earlier places."""
        x = tap(site, "input", x)
        for number, (name, sublayer) in enumerate(self.sublayers.items()):
            norm = self.norms[name]
            inner = tap(site, f"{name}.input", norm(x) if self.pre else x)
            where = inside(site, name)
            if name == "attention":
                if isinstance(past, Tensor) and self.pre:
                    past = norm(past)
                change = sublayer(inner, around, noise, where, past)
            else:
                change = sublayer(inner, where)
            x = x + dropout(change, self.rate, noise, 2 + number)
            if not self.pre:
                x = norm(x)
            if number + 1 < len(self.sublayers):
                x = tap(site, "residual_middle", x)
        return tap(site, "residual", x)
