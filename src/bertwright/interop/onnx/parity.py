"""Whether another runtime computes from a file what we compute from the model."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.interop.onnx.graph import Graph
from bertwright.interop.onnx.inputs import REAL, Given, rows
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import network_of

TOLERANCE = 1e-4
"""What float32 explains, as a share of the greatest output (of 1 at least)."""

BATCHES, LENGTHS = (1, 2, 5), (1, 9, 40)
"""Of every batch but one of a single row the first row is padded, and the last holds nothing."""


@dataclass(frozen=True)
class Parity:
    """The greatest absolute difference of any output, and the greatest of the outputs."""

    difference: float
    scale: float


class Runtime(Protocol):
    """What computes a file."""

    def run(self, output: str, given: Given, /) -> NDArray[np.float32]:
        """One of the outputs, of inputs by their names."""
        ...


@torch.inference_mode()
def parity(
    model: TextModel, inputs: tuple[str, ...], outputs: tuple[str, ...], runtime: Runtime
) -> Parity:
    """What a runtime gives against what the model gives, over batches of every size and length.

    Errors: UserError where they differ by more than rounding.
    """
    ours = Graph(network_of(model), inputs, outputs)
    difference, scale = 0.0, 0.0
    for given in _batches(model, inputs):
        found = ours(*(torch.from_numpy(each).to(model.device) for each in given.values()))
        for name, tensor in zip(outputs, found, strict=True):
            exact, theirs = tensor.float().cpu().numpy(), runtime.run(name, given)
            if exact.ndim == 2:  # of a row that holds nothing there is nothing to be said
                exact, theirs = (each[given[REAL].any(1)] for each in (exact, theirs))
            # By maximum, which lets no NaN pass.
            difference = float(np.maximum(difference, np.abs(theirs - exact).max()))
            scale = float(np.maximum(scale, np.abs(exact).max()))
    if not difference <= TOLERANCE * max(1.0, scale):
        raise UserError(
            f"what was written differs from the model by {difference:.2g} in outputs of at most "
            f"{scale:.2g}: this is a mistake of bertwright's, please report the recipe"
        )
    return Parity(difference, scale)


def require_computed(
    model: TextModel, inputs: tuple[str, ...], outputs: tuple[str, ...], runtime: Runtime
) -> None:
    """UserError where a runtime does not compute the same batches, whatever it makes of them."""
    name = network_of(model).recipe.name
    for given in _batches(model, inputs):
        # A row that holds nothing has no mean, and what is rounded with it has no range.
        given[REAL][~given[REAL].any(1)] = 1
        for output in outputs:
            try:
                found = runtime.run(output, given)
            except Exception as error:  # its classes are not public, and have no base but this one
                reason = str(error).strip().partition("\n")[0]
                raise UserError(f"{name} cannot be computed in 8 bits: {reason}") from error
            if not np.isfinite(found).all():
                raise UserError(f"{name} cannot be computed in 8 bits: {output} is not finite")


def _batches(model: TextModel, inputs: tuple[str, ...]) -> Iterator[Given]:
    net = network_of(model)
    longest = net.encoder.longest or max(LENGTHS)
    for number, length in product(BATCHES, LENGTHS):
        yield rows(inputs, net.vocabulary_size, number, min(length, longest))
