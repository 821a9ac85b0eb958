"""The sharpness of the loss in each block, which predicts the cost of quantization.

The method follows Shen et al. (2020, section 3.1). Sharpness is the eigenvalue with the largest
magnitude, possibly negative, of the Hessian of the loss with respect to the parameters of one
block. Power iteration needs only Hessian-vector products, each a backward pass through the
gradient.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev

import torch
from pydantic import Field
from torch import Tensor

from bertwright.compression.task_loss import ExampleBatch, example_subsets
from bertwright.core.config import Settings
from bertwright.core.rng import sample, stream_key
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.tasks.adapters.quantization.config import Bits
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples

MAX_ITERATIONS, TOLERANCE = 20, 1e-2
"""Maximum number of power iterations, and the relative change at which to stop."""

BATCH_SIZE = 16
"""Number of items per backward pass."""

ParameterVector = list[Tensor]
"""A vector in parameter space: one tensor per parameter."""


@dataclass(frozen=True)
class Sharpness:
    """The sharpness of one block: the signed eigenvalue of largest magnitude.

    ``mean`` and ``deviation`` are over subsets of the examples. ``gradient_norm`` is the mean norm
    of the gradient: unless it is small, the model is not at a minimum and the eigenvalue means
    little.
    """

    block: int
    mean: float
    deviation: float
    gradient_norm: float

    @property
    def omega(self) -> float:
        """The measure for comparing blocks: |mean| + deviation."""
        return abs(self.mean) + self.deviation

    def as_dict(self) -> dict[str, float]:
        """Return plain data, without the block."""
        return {
            "eigenvalue": self.mean,
            "deviation": self.deviation,
            "omega": self.omega,
            "gradient_norm": self.gradient_norm,
        }


def block_sharpness(
    model: FineTunedModel, examples: Examples, subsets: int = 4, seed: int = 0
) -> list[Sharpness]:
    """Return the sharpness of every block that has its own parameters.

    Examples are split into ``subsets`` subsets, or one per item if there are fewer.
    """
    blocks = _block_parameters(model)
    if not blocks:
        return []
    values: dict[int, list[float]] = {block: [] for block in blocks}
    norms: dict[int, list[float]] = {block: [] for block in blocks}
    for index, batches in enumerate(example_subsets(model, examples, BATCH_SIZE, subsets)):
        gradients = _block_gradients(batches, blocks)
        for block, parameters in blocks.items():
            gradient = gradients[block]
            start = _random_vector(parameters, stream_key(seed, "sharpness", block, index))
            product = partial(_hessian_vector_product, gradient, parameters)
            values[block].append(top_eigenvalue(product, start))
            norms[block].append(_dot(gradient, gradient) ** 0.5)
    return [
        Sharpness(
            block,
            fmean(block_values),
            stdev(block_values) if len(block_values) > 1 else 0.0,
            fmean(norms[block]),
        )
        for block, block_values in values.items()
        if block_values
    ]


def top_eigenvalue(
    matrix_vector_product: Callable[[ParameterVector], ParameterVector], start: ParameterVector
) -> float:
    """Return the eigenvalue of largest magnitude of a symmetric matrix.

    ``matrix_vector_product`` multiplies the matrix by a vector.
    """
    vector, value = _normalise(start)[0], 0.0
    for _ in range(MAX_ITERATIONS):
        multiplied = matrix_vector_product(vector)
        before, value = value, _dot(vector, multiplied)
        vector, length = _normalise(multiplied)
        if length == 0 or abs(value - before) < TOLERANCE * abs(value):
            break
    return value


def _block_parameters(model: FineTunedModel) -> dict[int, ParameterVector]:
    """Return the parameters by block; shared parameters belong to the first block."""
    encoder, blocks = model.task_model.encoder, dict[int, ParameterVector]()
    parameters = dict(encoder.named_parameters())
    for name, role in get_parameter_roles(encoder).items():
        if role.depth is not None and role.depth >= 0:
            blocks.setdefault(role.depth, []).append(parameters[name])
    return blocks


def _block_gradients(
    batches: Sequence[ExampleBatch], block_parameters: Mapping[int, ParameterVector]
) -> dict[int, ParameterVector]:
    """Return the gradient of the mean loss by block; it can be differentiated again."""
    parameters = [p for block in block_parameters.values() for p in block]
    sums, num_targets = [torch.zeros_like(parameter) for parameter in parameters], 0
    for batch in batches:
        # Recording every tap disables fused kernels, which have no second derivatives.
        with torch.enable_grad(), batch.model.task_model.encoder.record("*"):
            loss, count = batch.total()
        gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
        sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)]
        num_targets += count
    means = iter(total / num_targets for total in sums)
    return {block: [next(means) for _ in values] for block, values in block_parameters.items()}


def _hessian_vector_product(
    gradients: ParameterVector, parameters: ParameterVector, vector: ParameterVector
) -> ParameterVector:
    """Return the product of the Hessian with a vector, given the gradients."""
    with torch.enable_grad():
        products = [(a * b).sum() for a, b in zip(gradients, vector, strict=True)]
        total = torch.stack(products).sum()
    return list(torch.autograd.grad(total, parameters, retain_graph=True, materialize_grads=True))


def _random_vector(like: ParameterVector, seed: int) -> ParameterVector:
    generator = torch.Generator().manual_seed(seed >> 1)
    return [torch.randn(p.shape, generator=generator).to(p.device) for p in like]


def _normalise(vector: ParameterVector) -> tuple[ParameterVector, float]:
    """Return a vector scaled to length 1, and its length; 0 stays 0."""
    length = _dot(vector, vector) ** 0.5
    return [tensor / (length or 1.0) for tensor in vector], length


def _dot(first: ParameterVector, second: ParameterVector) -> float:
    products = (a.detach().double() * b.detach() for a, b in zip(first, second, strict=True))
    return sum(float(product.sum()) for product in products)


class MixedPrecision(Settings):
    """Mixed precision: more bits for the blocks with the sharpest loss.

    The sharpest ``high_fraction`` of blocks have ``high_bits``, the others ``low_bits``.

    Sharpness is measured on at most ``examples`` examples, in ``subsets``.
    """

    low_bits: Bits = 2
    high_bits: Bits = 3
    high_fraction: float = Field(default=0.5, ge=0, le=1)
    examples: int = Field(default=128, ge=1, le=1 << 20)
    subsets: int = Field(default=4, ge=1, le=65_536)

    def bits_by_block(self, model: FineTunedModel, examples: Examples) -> tuple[int, ...]:
        """Return the bits of every block of a fine-tuned model."""
        sharpness = block_sharpness(model, sample(examples, self.examples), self.subsets)
        return self.assign_bits(sharpness, len(model.task_model.encoder.blocks))

    def assign_bits(self, sharpness: Sequence[Sharpness], num_blocks: int) -> tuple[int, ...]:
        """Return the bits of every block; one that shares parameters gets its predecessor's."""
        sharpest = sorted(sharpness, key=lambda block: -block.omega)
        high = {s.block for s in sharpest[: round(self.high_fraction * len(sharpness))]}
        measured = {s.block for s in sharpness}
        bits: list[int] = []
        for block in range(num_blocks):
            block_bits = self.high_bits if block in high else self.low_bits
            bits.append(block_bits if block in measured or not bits else bits[-1])
        return tuple(bits)
