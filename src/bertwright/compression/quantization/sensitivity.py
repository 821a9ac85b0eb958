"""How sensitive a model is to quantization without training, module by module.

Modules are matrices, tables, inputs and outputs of linear layers, and whole blocks.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bertwright.compression.task_loss import ExampleBatch, example_batches, losses_and_counts
from bertwright.core.errors import UserError
from bertwright.core.significance import ConfidenceInterval, bootstrap_difference
from bertwright.encoder.encoder import Encoder
from bertwright.tasks.adapters.quantization.config import Quantization
from bertwright.tasks.adapters.quantization.fake_quantize import FakeQuantize
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples

BATCH_SIZE = 16
"""Number of items per forward pass."""

EVERYTHING = "everything"
"""Name for all modules together."""


@dataclass(frozen=True)
class QuantizationCost:
    """Mean loss with one module quantized, and the increase with its interval over examples."""

    module: str
    loss: float
    loss_increase: ConfidenceInterval

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; it has no bounds if there is a single example."""
        increase = self.loss_increase
        result = {"module": self.module, "loss": self.loss, "loss_increase": increase.value}
        if increase.num_units >= 2:
            result |= {"low": increase.low, "high": increase.high}
        return result


def quantization_costs(
    model: FineTunedModel,
    quantization: Quantization,
    calibration_examples: Examples,
    examples: Examples,
) -> Iterator[QuantizationCost]:
    """Yield the cost of quantizing each module, measured on ``examples``.

    Static activation ranges come from ``calibration_examples``. Raises UserError if the
    settings do not fit the encoder.
    """
    if problem := quantization.check(model.task_model.recipe.encoder):
        raise UserError(problem)
    copy = _quantizable_copy(model, quantization, calibration_examples)
    batches = example_batches(copy.model, examples, BATCH_SIZE)
    before = losses_and_counts(batches)
    for name, tensors in copy.modules().items():
        with copy.quantized(tensors):
            sums, counts = losses_and_counts(batches)
        loss = float(sums.sum() / counts.sum())
        yield QuantizationCost(name, loss, bootstrap_difference((sums, counts), before))


def quantize_after_training(
    model: FineTunedModel, quantization: Quantization, calibration_examples: Examples
) -> FineTunedModel:
    """Return a model with all modules quantized, without training (post-training quantization).

    Static activation ranges come from ``calibration_examples``.
    """
    copy = _quantizable_copy(model, quantization, calibration_examples)
    copy.quantize(copy.modules()[EVERYTHING])
    return copy.model


@dataclass(frozen=True)
class _QuantizableCopy:
    """A copy of a model whose weights and activations can be quantized one by one."""

    model: FineTunedModel
    quantized_weights: Mapping[str, Tensor]
    fake_quantizers: Mapping[str, FakeQuantize]

    def modules(self) -> dict[str, Sequence[str]]:
        """Return the weights and fake quantizers of each module, by name."""
        single = [*self.quantized_weights, *self.fake_quantizers]
        blocks = {
            f"blocks.{n}": [name for name in single if name.startswith(f"blocks.{n}.")]
            for n in range(len(self.model.task_model.encoder.blocks))
        }
        return {
            EVERYTHING: single,
            **{name: parts for name, parts in blocks.items() if parts},
            **{name: [name] for name in single},
        }

    @contextmanager
    def quantized(self, names: Sequence[str]) -> Generator[None]:
        """Quantize weights and activations within the context."""
        parameters = dict(self.model.task_model.encoder.named_parameters())
        before = {name: parameters[name].data for name in names if name in parameters}
        self.quantize(names)
        try:
            yield
        finally:
            for name, weight in before.items():
                parameters[name].data = weight
            for name in names:
                if name in self.fake_quantizers:
                    self.fake_quantizers[name].is_enabled.fill_(False)

    def quantize(self, names: Sequence[str]) -> None:
        """Quantize weights and activations permanently."""
        parameters = dict(self.model.task_model.encoder.named_parameters())
        for name in names:
            if name in parameters:
                parameters[name].data = self.quantized_weights[name]
            else:
                self.fake_quantizers[name].is_enabled.fill_(True)


def _quantizable_copy(
    model: FineTunedModel, quantization: Quantization, calibration_examples: Examples
) -> _QuantizableCopy:
    plain = remove_fake_quantizers(model)
    assert isinstance(plain, FineTunedModel)
    net = deepcopy(plain.task_model)
    quantization.insert_modules(net.encoder, net.recipe.encoder)
    length = model.example_encoder.max_length
    copy = FineTunedModel(net, model.tokenizer, model.task, length, "float32")
    _calibrate(net.encoder, quantization, example_batches(copy, calibration_examples, BATCH_SIZE))
    grids, parameters = quantization.grids(net.encoder), dict(net.encoder.named_parameters())
    fake_quantizers = {n: m for n, m in net.encoder.named_modules() if isinstance(m, FakeQuantize)}
    for fake_quantizer in fake_quantizers.values():
        fake_quantizer.is_enabled.fill_(False)
    weights = {name: grid.round(parameters[name].detach()) for name, grid in grids.items()}
    return _QuantizableCopy(copy, weights, fake_quantizers)


@torch.no_grad()
def _calibrate(
    encoder: Encoder, quantization: Quantization, batches: Sequence[ExampleBatch]
) -> None:
    """Observe the activation ranges, without quantizing."""
    training = quantization.model_copy(update={"start_fraction": 1.0}).build_parametrisation(
        encoder
    )
    training.init_parameters(0, {})
    for batch in batches:
        inputs, model = batch.batch(), batch.model.task_model
        document_ids = inputs.token_info.document_ids
        positions = model.head.output_positions(inputs.token_ids, document_ids, inputs.positions)
        with training.forward_context(document_ids, positions):
            model(inputs.token_ids, inputs.token_info, inputs.positions, inputs.output_lengths)
