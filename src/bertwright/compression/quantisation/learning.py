"""What rounding makes of the weights of an encoder in training, and what it sees of activations."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.compression.quantisation.observers import Observed, Observer
from bertwright.compression.quantisation.rounding import Rounding, WithinRange, rounded_weight
from bertwright.model.grids import Grid
from bertwright.tasks.adaptation.changes import Changes
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure


class Learning(Changes):
    """Weights on their grids, and ranges of activations by what is seen of them."""

    def __init__(
        self,
        grids: Mapping[str, Grid],
        roundings: Sequence[Rounding],
        observer: Observer | None,
        clipped: bool,
        start: float,
        settled: float,
    ) -> None:
        super().__init__()
        self.grids, self.clipped, self.start, self.settled = grids, clipped, start, settled
        # In a tuple, because they are parts of the encoder.
        self._roundings = tuple(roundings)
        self.looks_inside = bool(roundings)
        self.seen = Seen()
        self._watches = tuple(
            Watch(self.seen, rounding, observer)
            for rounding in roundings
            if observer is not None and isinstance(rounding, WithinRange)
        )
        self.observed = nn.ModuleList(watch.observed for watch in self._watches)
        self.procedures = [_When(self)]

    @property
    def done(self) -> bool:
        return self.seen.rounds

    def begin(self, seed: int) -> None:
        self.seen.rounds, self.seen.open = self.start <= 0, False
        for watch in self._watches:
            watch.begin()
        for rounding in self._roundings:
            rounding.on.fill_(self.seen.rounds and not isinstance(rounding, WithinRange))

    def at(self, progress: float) -> None:
        """How it is at a step."""
        self.seen.rounds = progress >= self.start
        self.seen.learns = progress < self.settled
        for watch in self._watches:
            watch.tell()
        for rounding in self._roundings:
            if not isinstance(rounding, WithinRange):
                rounding.on.fill_(self.seen.rounds)

    @contextmanager
    def reading(self, document: Tensor | None, wanted: Tensor | None) -> Generator[None]:
        seen = self.seen
        seen.real, seen.wanted = None if document is None else document >= 0, wanted
        seen.open = seen.learns
        try:
            yield
        finally:
            seen.open, seen.real, seen.wanted = False, None, None

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not self.seen.rounds:
            return {}
        return {
            name: rounded_weight(weights[name], grid, self.clipped)
            for name, grid in self.grids.items()
        }


@dataclass
class Seen:
    """What all watches share: whether values are rounded, whether ranges still change, and, while a
    pass is ``open``, which places (B, L) are ``real`` and which flat ones (M,) ``wanted``."""

    rounds: bool = False
    learns: bool = True
    open: bool = False
    real: Tensor | None = None
    wanted: Tensor | None = None

    def of(self, values: Tensor) -> Tensor:
        """Of values (..., parts, w) those at real places, (N, parts, w)."""
        places = values.shape[:-2]
        if self.real is None:
            return values.flatten(0, -3)
        if places == self.real.shape:
            return values[self.real]
        if self.wanted is not None and places == self.wanted.shape:
            return values[self.real.flatten()[self.wanted]]
        return values.flatten(0, -3)


class Watch:
    """Tells a rounding the range of what comes by."""

    def __init__(self, seen: Seen, rounding: WithinRange, observer: Observer) -> None:
        self._seen, self._rounding = seen, rounding
        self.observed: Observed = observer.build(rounding.parts, rounding.scheme)
        rounding.watch = self.look

    def begin(self) -> None:
        """Nothing has come by yet."""
        self.observed.to(self._rounding.on.device).begin()
        for buffer in self._rounding.buffers():
            buffer.zero_()

    @torch.no_grad()
    def look(self, values: Tensor) -> None:
        """Values (..., parts, w), before they are rounded."""
        if self._seen.open:
            self.observed.see(self._seen.of(values))
            self.tell()

    @torch.no_grad()
    def tell(self) -> None:
        """Have what comes by rounded within the range that is known now."""
        low, high = self.observed.range()
        self._rounding.low.copy_(low)
        self._rounding.high.copy_(high)
        self._rounding.on.fill_(self._seen.rounds and int(self.observed.count) > 0)


class _When(Procedure):
    """What is done when, and what was seen until then."""

    name = "quantised"

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def before_step(self, place: Place) -> None:
        self._learning.at(place.progress)

    def state(self) -> dict[str, Tensor]:
        return dict(self._learning.observed.state_dict())

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._learning.observed.load_state_dict(dict(state))
