"""Outputs for long texts that are split into overlapping windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.output_type import OutputType
from bertwright.tasks.outputs.probabilities import FloatArray

WindowPooling = Literal["mean", "max"]


class WindowedOutput(OutputType):
    """Outputs for a text or a pair, which may be long.

    ``stride`` is the number of tokens between the starts of two windows of a long text, the second
    one in a pair; None truncates it. ``window_pooling`` combines the windows: ``mean`` averages
    their predictions, ``max`` takes the largest of each output, so that one window is enough for a
    class (MaxP; Dai and Callan 2019). Every window is trained on the target of the whole text.
    """

    stride: int | None = Field(default=None, ge=1, le=1 << 20)
    window_pooling: WindowPooling = "mean"

    @property
    def can_use_stride(self) -> bool:
        return self.stride is None

    def pool_windows(self, outputs: FloatArray) -> FloatArray:
        """Return outputs (R, K) whose mean prediction is that of a text, given its windows'."""
        return outputs.max(0, keepdims=True) if self.window_pooling == "max" else outputs


@dataclass(frozen=True)
class WindowedDecoder(OutputDecoder):
    """A decoder for texts that are split into windows if a stride is set."""

    config: WindowedOutput

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[Example]
    ) -> list[TaskSequence]:
        return example_encoder.encode(examples, self.config.stride)

    def share_windows(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray]
    ) -> Sequence[FloatArray]:
        if self.config.window_pooling != "max":
            return outputs
        by_example: dict[int, list[FloatArray]] = {}
        for sequence, values in zip(sequences, outputs, strict=True):
            by_example.setdefault(sequence.example_index, []).append(values)
        pooled = {
            index: self.config.pool_windows(np.concatenate(windows))
            for index, windows in by_example.items()
        }
        return [pooled[sequence.example_index] for sequence in sequences]

    def window_outputs(self, parts: Sequence[SequenceOutputs]) -> FloatArray:
        """Return the outputs (R, K) whose mean prediction is that of the text."""
        return self.config.pool_windows(np.concatenate([outputs for _, outputs in parts]))
