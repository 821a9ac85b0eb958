"""How sharply the loss rises around a block: what its weights lose when they are rounded (Shen et
al. 2020, section 3.1).

The eigenvalue of the greatest magnitude, which may be a negative one, of the matrix of second
derivatives of the loss, in the parameters of one block, is found by power iteration: the matrix
itself is never written down, only multiplied with vectors, each at the price of one backward pass
through the gradient.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev

import torch
from torch import Tensor

from bertwright.compression.quantisation.losses import Asked, asked
from bertwright.encoder.roles import roles
from bertwright.randomness import key
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples

STEPS, CLOSE = 20, 1e-2
"""Of power iteration: at most so many, until the relative change is smaller."""

AT_ONCE = 16
"""Items that are differentiated together."""

Vector = list[Tensor]
"""As many numbers as there are parameters, in their shapes."""


@dataclass(frozen=True)
class Sharpness:
    """Of one block: the eigenvalue of the greatest magnitude, with its sign, as the ``mean`` over
    subsets of the examples and its ``deviation``; and the mean norm of the ``gradient``: where that
    is not small there is no minimum, of which alone an eigenvalue says something."""

    block: int
    mean: float
    deviation: float
    gradient: float

    @property
    def omega(self) -> float:
        """By which blocks are compared: |mean| + deviation."""
        return abs(self.mean) + self.deviation

    def as_dict(self) -> dict[str, float]:
        """Plain data, but for which block it is of."""
        return {
            "sharpness": self.mean,
            "deviation": self.deviation,
            "omega": self.omega,
            "gradient": self.gradient,
        }


def sharpness(
    model: FineTuned, examples: Examples, subsets: int = 4, seed: int = 0
) -> list[Sharpness]:
    """Of every block that has parameters of its own, over examples that are cut into so many
    subsets, at most as many as there are examples."""
    blocks = _by_block(model)
    if not blocks:
        return []
    values: dict[int, list[float]] = {block: [] for block in blocks}
    norms: dict[int, list[float]] = {block: [] for block in blocks}
    for number in range(min(subsets, len(examples))):
        slopes = _slopes(asked(model, examples[number::subsets], AT_ONCE), blocks)
        for block, parameters in blocks.items():
            own = slopes[block]
            start = _drawn(parameters, key(seed, "sharpness", block, number))
            values[block].append(top_eigenvalue(partial(_multiplied, own, parameters), start))
            norms[block].append(_dot(own, own) ** 0.5)
    return [
        Sharpness(block, fmean(own), stdev(own) if len(own) > 1 else 0.0, fmean(norms[block]))
        for block, own in values.items()
        if own
    ]


def top_eigenvalue(product: Callable[[Vector], Vector], start: Vector) -> float:
    """Of a symmetric matrix the eigenvalue of the greatest magnitude, by what it makes of
    vectors."""
    vector, value = _normed(start)[0], 0.0
    for _ in range(STEPS):
        multiplied = product(vector)
        before, value = value, _dot(vector, multiplied)
        vector, length = _normed(multiplied)
        if length == 0 or abs(value - before) < CLOSE * abs(value):
            break
    return value


def _by_block(model: FineTuned) -> dict[int, Vector]:
    """The parameters of every block; of several that share them, those of the first."""
    encoder, found = model.net.encoder, dict[int, Vector]()
    known = dict(encoder.named_parameters())
    for name, role in roles(encoder).items():
        if role.depth is not None and role.depth >= 0:
            found.setdefault(role.depth, []).append(known[name])
    return found


def _slopes(batches: Sequence[Asked], blocks: Mapping[int, Vector]) -> dict[int, Vector]:
    """The gradient of the mean loss of batches, by block, which can be differentiated again."""
    every = [parameter for own in blocks.values() for parameter in own]
    sums, number = [torch.zeros_like(parameter) for parameter in every], 0
    for batch in batches:
        # Whoever listens to everything has all computed by the definitions, which have second
        # derivatives where fast kernels have none.
        with torch.enable_grad(), batch.model.net.encoder.record("*"):
            loss, count = batch.total()
        found = torch.autograd.grad(loss, every, create_graph=True, materialize_grads=True)
        sums, number = [a + b for a, b in zip(sums, found, strict=True)], number + count
    means = iter(each / number for each in sums)
    return {block: [next(means) for _ in own] for block, own in blocks.items()}


def _multiplied(slopes: Vector, parameters: Vector, vector: Vector) -> Vector:
    """The second derivatives of what has these slopes, times a vector."""
    with torch.enable_grad():
        along = torch.stack([(a * b).sum() for a, b in zip(slopes, vector, strict=True)]).sum()
    again = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
    return list(again)


def _drawn(like: Vector, seed: int) -> Vector:
    generator = torch.Generator().manual_seed(seed >> 1)
    return [torch.randn(each.shape, generator=generator).to(each.device) for each in like]


def _normed(vector: Vector) -> tuple[Vector, float]:
    """A vector of length 1 in this direction, and how long it was; 0 stays 0."""
    length = _dot(vector, vector) ** 0.5
    return [each / (length or 1.0) for each in vector], length


def _dot(first: Vector, second: Vector) -> float:
    products = (a.detach().double() * b.detach() for a, b in zip(first, second, strict=True))
    return sum(float(each.sum()) for each in products)
