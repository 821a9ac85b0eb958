"""What each place of a model costs when it alone is rounded, without any training for it: every
matrix and table, what every linear layer reads and what it writes, every block as a whole."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bertwright.compression.quantisation.losses import Asked, asked, sums_and_counts
from bertwright.compression.quantisation.quantised import Quantised, unrounded
from bertwright.compression.quantisation.rounding import Rounding
from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.significance import Interval, of_difference
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples

AT_ONCE = 16
"""Items that are answered together."""

EVERYTHING = "everything"
"""The place of all places."""


@dataclass(frozen=True)
class Cost:
    """The mean ``loss`` when a place is rounded, and by how much it has risen, with an interval
    over the examples."""

    place: str
    loss: float
    rise: Interval

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        known = {"place": self.place, "loss": self.loss, "rise": self.rise.value}
        alone = self.rise.num_units < 2
        return known if alone else known | {"low": self.rise.low, "high": self.rise.high}


def scan(
    model: FineTuned, how: Quantised, calibrating: Examples, examples: Examples
) -> Iterator[Cost]:
    """The costs of all places on ``examples``, when they are rounded so; activations, if they have
    static ranges, within those that are seen on the ``calibrating`` examples.

    Errors: UserError where the settings do not fit the encoder.
    """
    if wrong := how.check(model.net.recipe.encoder):
        raise UserError(wrong)
    twin = _twin(model, how, calibrating)
    batches, places = asked(twin.model, examples, AT_ONCE), twin.places()
    before = sums_and_counts(batches)
    for name, parts in places.items():
        with twin.rounding(parts):
            sums, counts = sums_and_counts(batches)
        loss = float(sums.sum() / counts.sum())
        yield Cost(name, loss, of_difference((sums, counts), before))


def rounded_afterwards(model: FineTuned, how: Quantised, calibrating: Examples) -> FineTuned:
    """A model of the same weights, all of whose places are rounded, without any training for it;
    ``calibrating`` as in :func:`scan`."""
    twin = _twin(model, how, calibrating)
    twin.round(twin.places()[EVERYTHING])
    return twin.model


@dataclass(frozen=True)
class _Twin:
    """A model of the same weights that can round them and what stands between, place by place."""

    model: FineTuned
    weights: Mapping[str, Tensor]
    roundings: Mapping[str, Rounding]

    def places(self) -> dict[str, Sequence[str]]:
        """What each place is made of."""
        single = [*self.weights, *self.roundings]
        blocks = range(len(self.model.net.encoder.blocks))
        of_blocks = {
            f"blocks.{n}": [name for name in single if name.startswith(f"blocks.{n}.")]
            for n in blocks
        }
        return {
            EVERYTHING: single,
            **{name: own for name, own in of_blocks.items() if own},
            **{name: [name] for name in single},
        }

    @contextmanager
    def rounding(self, names: Sequence[str]) -> Generator[None]:
        """Round these while it is open."""
        known = dict(self.model.net.encoder.named_parameters())
        before = {name: known[name].data for name in names if name in known}
        self.round(names)
        try:
            yield
        finally:
            for name, weight in before.items():
                known[name].data = weight
            for name in names:
                if name in self.roundings:
                    self.roundings[name].on.fill_(False)

    def round(self, names: Sequence[str]) -> None:
        """Round these from now on."""
        known = dict(self.model.net.encoder.named_parameters())
        for name in names:
            if name in known:
                known[name].data = self.weights[name]
            else:
                self.roundings[name].on.fill_(True)


def _twin(model: FineTuned, how: Quantised, calibrating: Examples) -> _Twin:
    plain = unrounded(model)
    assert isinstance(plain, FineTuned)
    net = deepcopy(plain.net)
    how.insert(net.encoder)
    own = FineTuned(net, model.tokenizer, model.task, model.maker.length, "float32")
    _calibrate(own.net.encoder, how, asked(own, calibrating, AT_ONCE))
    weights, of = how.grids(net.encoder), dict(net.encoder.named_parameters())
    roundings = {n: m for n, m in net.encoder.named_modules() if isinstance(m, Rounding)}
    for rounding in roundings.values():
        rounding.on.fill_(False)
    rounded = {name: grid.rounded(of[name].detach()) for name, grid in weights.items()}
    return _Twin(own, rounded, roundings)


@torch.no_grad()
def _calibrate(encoder: Encoder, how: Quantised, batches: Sequence[Asked]) -> None:
    """See the ranges of what comes by, which is not rounded meanwhile."""
    learning = how.model_copy(update={"start": 1.0}).changes(encoder)
    learning.begin(0)
    for batch in batches:
        given, head = batch.given(), batch.model.net.head
        wanted = head.places(given.pieces, given.coordinates.document, given.where)
        with learning.reading(given.coordinates.document, wanted):
            batch.model.net(*given)
