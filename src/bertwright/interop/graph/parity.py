"""Compare an exported file with the model."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.interop.graph.inputs import ATTENTION_MASK, GraphInputs, random_graph_inputs
from bertwright.interop.graph.module import ExportModule, graph_input_names
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.interop.parity import Parity
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import network_of

BATCH_SIZES, SEQUENCE_LENGTHS = (1, 2, 5), (1, 9, 40)
"""Batch sizes and lengths; :func:`random_graph_inputs` describes their padding."""


class GraphRuntime(Protocol):
    """A runtime for an exported file."""

    def run(self, output_name: str, inputs: GraphInputs, /) -> NDArray[np.float32]:
        """Return one output."""
        ...


@torch.inference_mode()
def check_parity(model: TextModel, outputs: GraphOutputs, runtime: GraphRuntime) -> Parity:
    """Compare a runtime with the model on batches of several sizes and lengths.

    Raises UserError if they differ by more than rounding.
    """
    network = network_of(model)
    module = ExportModule(network, graph_input_names(network.recipe), outputs)
    parity = Parity()
    for inputs in _random_batches(model):
        tensors = module(*(torch.from_numpy(array).to(model.device) for array in inputs.values()))
        for name, tensor in zip(outputs.names, tensors, strict=True):
            ours, theirs = tensor.float().cpu().numpy(), runtime.run(name, inputs)
            if ours.ndim == 2:  # an empty sequence has no output to compare
                ours, theirs = (array[inputs[ATTENTION_MASK].any(1)] for array in (ours, theirs))
            parity.update(ours, theirs)
    parity.require_rounding("the exported file")
    return parity


def require_finite_outputs(
    model: TextModel, output_names: Sequence[str], runtime: GraphRuntime
) -> None:
    """Raise UserError if an int8 graph fails, or gives NaN or infinity, on the same batches."""
    name = network_of(model).recipe.name
    for inputs in _random_batches(model):
        # An empty sequence has no mean, so its tensors have no quantization range.
        inputs[ATTENTION_MASK][~inputs[ATTENTION_MASK].any(1)] = 1
        for output_name in output_names:
            try:
                outputs = runtime.run(output_name, inputs)
            except Exception as error:  # onnxruntime's classes have no common base
                reason = str(error).strip().partition("\n")[0]
                raise UserError(f"{name} cannot be computed in 8 bits: {reason}") from error
            if not np.isfinite(outputs).all():
                raise UserError(f"{name} cannot be computed in 8 bits: {output_name} is not finite")


def _random_batches(model: TextModel) -> Iterator[GraphInputs]:
    network = network_of(model)
    input_names = graph_input_names(network.recipe)
    max_length = network.encoder.max_length or max(SEQUENCE_LENGTHS)
    for batch_size, length in product(BATCH_SIZES, SEQUENCE_LENGTHS):
        yield random_graph_inputs(
            input_names, network.vocab_size, batch_size, min(length, max_length)
        )
