"""Rows of new tokens in the tables of a trained model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.rng import generator, stream_key

NOISE_VARIANCE = 1e-5
"""Variance of the noise around the average row, as a fraction of that of all rows (Hewitt 2021)."""


@dataclass(frozen=True)
class NewRows:
    """What the rows of new tokens are computed from.

    - ``parts``: the ids of the former tokens of each new token
    - ``part_lengths``: the number of characters of each of these tokens
    - ``known_ids``: the ids of all tokens of the original vocabulary
    - ``build``: builds an initialised network with rows for the new tokens
    - ``first_id``: the id of the first new token
    - ``seed``: seed of random numbers
    """

    parts: Sequence[Sequence[int]]
    part_lengths: Sequence[Sequence[int]]
    known_ids: Tensor
    build: Callable[[], nn.Module]
    first_id: int
    seed: int

    @cached_property
    def initialised(self) -> Mapping[str, Tensor]:
        """Return the parameters and buffers of an untrained network."""
        network = self.build()
        return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def _mean(new: NewRows, name: str, table: Tensor) -> Tensor:
    """Return the mean of the rows of the former tokens (Gee et al. 2022)."""
    return _weighted(table, new.parts, [[1.0] * len(parts) for parts in new.parts])


def _length(new: NewRows, name: str, table: Tensor) -> Tensor:
    """Return the mean of the rows of the former tokens, weighted by their characters."""
    return _weighted(table, new.parts, new.part_lengths)


def _average(new: NewRows, name: str, table: Tensor) -> Tensor:
    """Return the mean of all rows, with noise of the shape of their distribution (Hewitt 2021)."""
    rows = table[new.known_ids.to(table.device)].double().view(len(new.known_ids), -1)
    centred = rows - rows.mean(0)
    values, axes = torch.linalg.eigh(centred.T @ centred / len(rows))
    rng = generator(stream_key(new.seed, "new tokens", name))
    normal = torch.from_numpy(rng.standard_normal((len(new.parts), rows.shape[1])))
    scales = (NOISE_VARIANCE * values.clamp(min=0)).sqrt()
    noise = (normal.to(rows) * scales) @ axes.T
    return (rows.mean(0) + noise).view(-1, *table.shape[1:]).to(table.dtype)


def _random(new: NewRows, name: str, table: Tensor) -> Tensor:
    """Return the rows of an untrained model."""
    last = new.first_id + len(new.parts)
    return new.initialised[name][new.first_id : last].detach().to(table)


INITIALISERS: dict[str, Callable[[NewRows, str, Tensor], Tensor]] = {
    "mean": _mean,
    "length": _length,
    "average": _average,
    "random": _random,
}
"""Functions by name from the rows of a parameter to those of the new tokens."""


def require_initialiser(name: str) -> None:
    """Raise UserError unless there is an initialiser of this name."""
    if name not in INITIALISERS:
        raise UserError(
            f"there is no initialiser {name!r}{did_you_mean(name, INITIALISERS)}: choose one of "
            f"{', '.join(INITIALISERS)}"
        )


def _weighted(
    table: Tensor, parts: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]
) -> Tensor:
    """Return the weighted mean of some rows of a table (V, ...), for every list of rows."""
    lengths = [len(ids) for ids in parts]
    owners = torch.from_numpy(np.repeat(np.arange(len(parts)), lengths)).to(table.device)
    ids = torch.tensor([row for ids in parts for row in ids], device=table.device)
    fractions = [weight / sum(of_token) for of_token in weights for weight in of_token]
    scale = torch.tensor(fractions, dtype=torch.float64, device=table.device)
    scaled = table[ids].double() * scale.view(-1, *[1] * (table.ndim - 1))
    zeros = scaled.new_zeros(len(parts), *table.shape[1:])
    return zeros.index_add(0, owners, scaled).to(table.dtype)
