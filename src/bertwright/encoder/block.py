"""A block: a row of sublayers around the residual stream."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from bertwright.encoder.cache import Past
from bertwright.encoder.dropout import Drop
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, inside, tap

SUBLAYERS = {"s": "attention", "f": "feed_forward", "c": "cross_attention"}
"""The letters of an order string: s mixes places (self-attention), f is a feed-forward, c reads
what another stack has read (cross-attention)."""

MIXING = ("attention", "cross_attention")
"""Of these, what is told of the surroundings of its places."""

Join = Callable[[Tensor, Tensor], Tensor]
"""The states behind a sublayer, of what it reads and what it writes."""


def added(x: Tensor, change: Tensor) -> Tensor:
    """Both of them."""
    return x + change


def replaced(x: Tensor, change: Tensor) -> Tensor:
    """What is written alone."""
    return change


def numbered(name: str, number: int) -> str:
    """The name of the first, second, ... of several in one block: ``name``, ``name_2``, ..."""
    return name if number == 1 else f"{name}_{number}"


def taken(x: Tensor, noise: Noise | None, wanted: Tensor) -> tuple[Tensor, Noise | None]:
    """Of x (B, L, D) the ``wanted`` flat places (M,), (M, D), and their noise."""
    rows = x.flatten(0, 1).index_select(0, wanted)
    return rows, None if noise is None else noise.at(wanted, x.shape[1])


class Block(nn.Module):
    """Some sublayers, each ``norm, mix, drop, join`` in the order that the placement says.

    ``norms`` holds one norm per sublayer; an identity leaves it out. ``weights`` holds what weighs
    the states behind each sublayer with those before, where there is such. ``join`` makes the
    states of what a sublayer reads and what it writes; ``written`` is how wide the latter is.
    ``adapters`` is empty until something is put behind sublayers.
    """

    def __init__(
        self,
        sublayers: dict[str, nn.Module],
        norms: dict[str, nn.Module],
        weights: dict[str, nn.Module],
        pre: bool,
        drop: Drop,
        join: Join,
        written: Mapping[str, int],
    ) -> None:
        super().__init__()
        self.sublayers = nn.ModuleDict(sublayers)
        self.norms = nn.ModuleDict(norms)
        self.weights = nn.ModuleDict(weights)
        self.adapters = nn.ModuleDict()
        self.pre, self.drop, self.join, self.written = pre, drop, join, dict(written)
        mixing = [n for n, name in enumerate(sublayers, start=1) if name in MIXING]
        self.last_mixing = max(mixing, default=0)

    @property
    def narrows(self) -> bool:
        """Whether it can compute the states of some places only."""
        return not self.weights and not self.drop.locked

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
        """x (B, L, D) to (B, L, D); ``past`` is what this block knows of earlier places, ``made``
        what all sublayers so far have made, (B, L, D) each; it grows by what these make. Of the
        ``wanted`` flat places (M,) alone: (M, D)."""
        x = tap(site, "input", x)
        found = self.through(x, around, noise, site, past, made, wanted=wanted)
        return tap(site, "residual", found)

    def through(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Past | None = None,
        made: list[Tensor] | None = None,
        outer: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """x (B, L, d) through all sublayers; attention reads ``outer`` (B, L, D) where x is but a
        narrow view of it. Where only some places are ``wanted``, what stands behind the last
        mixing of places is computed for these."""
        if wanted is not None and not self.last_mixing:
            x, noise = taken(x, noise, wanted)
        for number, name in enumerate(self.sublayers, start=1):
            chosen = wanted if number == self.last_mixing else None
            change = self.change(number, x, around, noise, site, past, outer, chosen)
            if chosen is not None:
                x, noise = taken(x, noise, chosen)
            x = self.join(x, change)
            if not self.pre:
                x = self.norms[name](x)
            if made is not None:
                made.append(x)
                x = self.weights[name](made)
            if number < len(self.sublayers):
                x = tap(site, numbered("residual_middle", number), x)
        return x

    def change(
        self,
        number: int,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Past | None = None,
        outer: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """What the sublayer with this number, from 1 on, writes of the stream x (B, L, d), or of
        the ``wanted`` places of it."""
        name = list(self.sublayers)[number - 1]
        norm, sublayer, where = self.norms[name], self.sublayers[name], inside(site, name)
        inner = norm(x) if self.pre else x
        if name in MIXING:
            inner = tap(site, f"{name}.input", inner if outer is None else outer)
            if isinstance(past, Tensor) and self.pre and name == "attention":
                past = norm(past)
            found = sublayer(inner, around, noise, where, past)
        else:
            found = sublayer(tap(site, f"{name}.input", inner), where)
        if wanted is not None:
            found, noise = taken(found, noise, wanted)
        if name in self.adapters:
            found = self.adapters[name](found)
        return self.drop(found, noise, 1 + number)

    def change_in(
        self,
        dtype: torch.dtype,
        number: int,
        stream: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Past | None = None,
    ) -> Tensor:
        """The same, computed in ``dtype``, of a stream that is kept in another."""
        x = stream.to(dtype)
        return self.change(number, x, around, noise, site, past).to(stream.dtype)

    def parameters_of(self, number: int) -> Iterator[nn.Parameter]:
        """The parameters of the sublayer with this number, from 1 on, of its norm and of its
        adapter."""
        name = list(self.sublayers)[number - 1]
        yield from self.sublayers[name].parameters()
        yield from self.norms[name].parameters()
        if name in self.adapters:
            yield from self.adapters[name].parameters()

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile the whole, so that one graph serves all blocks; where it looks back, which each
        block does further than the one before, only its sublayers. A passage that takes the
        sublayers one by one finds those compiled, too."""
        for part in self.sublayers.values() if self.weights else (self,):
            part.compile(dynamic=dynamic)
        self.change_in = torch.compile(self.change_in, dynamic=dynamic)
