"""Quantization-aware training of an encoder's weights and, optionally, activations.

Q8BERT and Q-BERT are configurations of it. Training updates the unrounded weights; the finished
model has the rounded weights and the ranges of its activations.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from torch import nn

from bertwright.core.config import Settings, to_user_error
from bertwright.core.messages import count_noun
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models.quantized_weights import BITS_RANGE, QuantizationGrid, QuantizationScheme
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.tasks.adapters.adaptation import AdaptationConfig
from bertwright.tasks.adapters.parametrisation import WeightParametrisation
from bertwright.tasks.adapters.quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizedLinear,
    PerTokenFakeQuantize,
    StaticFakeQuantize,
)
from bertwright.tasks.adapters.quantization.granularity import Granularity, PerRow
from bertwright.tasks.adapters.quantization.observers import (
    MovingAverageObserverConfig,
    ObserverConfig,
)
from bertwright.tasks.adapters.quantization.training import QuantizationAwareTraining

Bits = Annotated[int, Field(ge=BITS_RANGE[0], le=BITS_RANGE[1])]


class ActivationQuantization(Settings):
    """The quantization of the inputs and outputs of linear layers.

    ``tensors`` selects inputs, outputs or both. ``ranges`` are ``static``, as observed by the
    ``observer`` during the first ``freeze_fraction`` of the training, or computed per ``token``.
    """

    bits: Bits = 8
    scheme: QuantizationScheme = "symmetric"
    tensors: tuple[Literal["inputs", "outputs"], ...] = ("inputs", "outputs")
    ranges: Literal["static", "token"] = "static"
    observer: ObserverConfig = MovingAverageObserverConfig()
    freeze_fraction: float = Field(default=1.0, gt=0, le=1)

    def build(self, num_parts: int, clips_gradients: bool) -> FakeQuantize:
        """Return a fake quantizer for values stored in ``num_parts`` parts."""
        fake_quantizer = StaticFakeQuantize if self.ranges == "static" else PerTokenFakeQuantize
        return fake_quantizer(num_parts, self.bits, self.scheme, clips_gradients)


class Quantization(AdaptationConfig):
    """An adaptation that trains all weights through fake quantization.

    Matrices in blocks have ``bits``, one number for all blocks or one per block; embedding tables
    and other matrices have ``other_bits``. ``granularity`` determines which weights of a matrix
    share a scale; tables have one scale per row. ``activations`` quantizes the inputs and outputs
    of linear layers; None leaves them in floating point. Norms, biases, softmax, activation
    functions and the head are not quantized. Gradients pass through rounding, but with
    ``clip_gradients`` not beyond the range. Quantization starts at ``start_fraction`` of the
    training.
    """

    kind: Literal["quantised"] = "quantised"
    bits: Bits | tuple[Bits, ...] = 8
    other_bits: Bits = 8
    granularity: Granularity = PerRow()
    scheme: QuantizationScheme = "symmetric"
    activations: ActivationQuantization | None = None
    clip_gradients: bool = True
    start_fraction: float = Field(default=0.0, ge=0, le=1)

    @staticmethod
    def from_settings(settings: Mapping[str, Any]) -> "Quantization":
        """Return validated settings; raise UserError naming the invalid setting."""
        try:
            return Quantization.model_validate(dict(settings))
        except ValidationError as error:
            raise to_user_error(error, "quantised") from error

    def check(self, encoder: EncoderConfig) -> str | None:
        blocks = len(encoder.hidden_widths) - 1
        if isinstance(self.bits, tuple) and len(self.bits) != blocks:
            return (
                f"adaptation.bits: {count_noun(len(self.bits), 'number')} for "
                f"{count_noun(blocks, 'block')}: give one number, or one for each block"
            )
        return None

    def insert_modules(self, encoder: Encoder, config: EncoderConfig) -> None:
        if self.activations is not None:
            insert_fake_quantizers(encoder, self.activations, self.clip_gradients)

    def build_parametrisation(self, encoder: Encoder) -> WeightParametrisation:
        fake_quantizers = [m for m in encoder.modules() if isinstance(m, FakeQuantize)]
        activations = self.activations
        return QuantizationAwareTraining(
            self.grids(encoder),
            fake_quantizers,
            None if activations is None or activations.ranges == "token" else activations.observer,
            self.clip_gradients,
            self.start_fraction,
            1.0 if activations is None else activations.freeze_fraction,
        )

    def grids(self, encoder: Encoder) -> dict[str, QuantizationGrid]:
        parameters = dict(encoder.named_parameters())
        grids: dict[str, QuantizationGrid] = {}
        for name, role in get_parameter_roles(encoder).items():
            shape = parameters[name].shape
            if role.kind == "table" and len(shape) == 2:
                grids[name] = QuantizationGrid(self.other_bits, 1, shape[1], self.scheme)
            if role.kind == "matrix" and len(shape) == 2:
                group = self.granularity.group_shape(shape, role.num_parts)
                grids[name] = QuantizationGrid(self._bits_at_depth(role.depth), *group, self.scheme)
        return grids

    def _bits_at_depth(self, depth: int | None) -> int:
        """Return the bits of matrices in the block at a depth, or outside all blocks."""
        if depth is None or depth < 0:
            return self.other_bits
        return self.bits if isinstance(self.bits, int) else self.bits[depth]


def insert_fake_quantizers(
    encoder: Encoder, activations: ActivationQuantization, clips_gradients: bool = True
) -> None:
    """Replace the linear layers of an encoder by fake-quantized ones.

    A layer shared by several blocks stays shared; its ranges cover all its uses.
    """
    roles = get_parameter_roles(encoder)
    num_parts = {id(p): roles[name].num_parts for name, p in encoder.named_parameters()}
    quantized: dict[int, FakeQuantizedLinear] = {}

    def quantizer(tensor: Literal["inputs", "outputs"], parts: int) -> nn.Module:
        if tensor not in activations.tensors:
            return nn.Identity()
        return activations.build(parts, clips_gradients)

    for module in list(encoder.modules()):
        for name, child in list(module.named_children()):
            if type(child) is not nn.Linear:
                continue
            if id(child) not in quantized:
                outputs = quantizer("outputs", num_parts[id(child.weight)])
                quantized[id(child)] = FakeQuantizedLinear(child, quantizer("inputs", 1), outputs)
            setattr(module, name, quantized[id(child)])
