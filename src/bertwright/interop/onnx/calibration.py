"""Activation ranges of a static int8 graph, measured on sample sequences.

With static ranges a graph does not compute a range per batch, and the result of a sequence does not
depend on the rest of the batch. Values outside the range are clipped.
"""

import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from bertwright.core.errors import UserError
from bertwright.interop.graph.inputs import GraphInputs
from bertwright.interop.graph.module import graph_input_names, make_graph_inputs
from bertwright.interop.onnx.manifest import has_external_data
from bertwright.models.text_batches import text_batches
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.inputs import TaskInputs, as_examples

RangeObserver = Literal["minmax", "percentile", "entropy"]
"""Range by minimum and maximum, by percentile, or by least KL divergence after rounding."""

PERCENTILE = 99.999
"""Clipping the usual 1 % costs a sentence encoder a quarter of its cosine similarity."""

MATMUL_OPERATORS = ("MatMul", "Gemm")

QUANTISED_OPERATORS = (*MATMUL_OPERATORS, "Gather")
"""Operators computed in int8 if one of their inputs is a weight matrix or table."""


MAX_SEQUENCES, MAX_TOKENS = 256, 16_384
"""Maximum numbers of texts and tokens to use: 15 s on one core for six blocks of width 384."""


@dataclass(frozen=True)
class ActivationCalibration:
    """Unpadded batches to calibrate on, their number of sequences, and the observer of ranges."""

    batches: Sequence[GraphInputs]
    num_sequences: int
    observer: RangeObserver = "minmax"

    @staticmethod
    def from_examples(
        model: TextModel, examples: TaskInputs, observer: RangeObserver = "minmax"
    ) -> "ActivationCalibration":
        """Encode texts, or the examples of a fine-tuned model's task.

        Raises UserError if there are none.
        """
        sequences, segments = _encode_examples(model, examples)
        if not sequences:
            raise UserError("no texts to calibrate on: name others")
        ends = np.cumsum([len(token_ids) for token_ids in sequences])
        sequences = sequences[: int(np.searchsorted(ends, MAX_TOKENS)) + 1]
        inputs = graph_input_names(model.model.recipe)
        return ActivationCalibration(
            list(_unpadded_batches(sequences, segments, inputs)), len(sequences), observer
        )

    @property
    def description(self) -> str:
        """How the ranges were found, in words."""
        return f"{self.observer} of {self.num_sequences} sequences"

    def tensor_overrides(
        self, graph_file: Path, work_folder: Path
    ) -> dict[str, list[dict[str, Any]]]:
        """Return the range of each tensor that is multiplied by weights, in onnxruntime's format.

        ``work_folder`` takes temporary files.
        """
        from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

        create: Any = create_calibrator
        methods: Any = CalibrationMethod
        method, settings = {
            "minmax": (methods.MinMax, {}),
            "percentile": (methods.Percentile, {"percentile": PERCENTILE}),
            "entropy": (methods.Entropy, {}),
        }[self.observer]
        with redirect_stdout(io.StringIO()):  # it logs every batch
            calibrator = create(
                str(graph_file),
                QUANTISED_OPERATORS,
                augmented_model_path=str(work_folder / "watched.onnx"),
                calibrate_method=method,
                use_external_data_format=has_external_data(graph_file),
                extra_options=settings,
            )
            for batch in self.batches:
                calibrator.collect_data(CalibrationBatchReader([batch]))
            ranges = calibrator.compute_data()
        return {name: [_range_override(known.range_value)] for name, known in ranges.items()}


class CalibrationBatchReader:
    """Batches behind the interface that onnxruntime requires."""

    def __init__(self, batches: Sequence[GraphInputs]) -> None:
        self._remaining = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        """Return the next batch, or None at the end."""
        batch = next(self._remaining, None)
        return None if batch is None else dict(batch)


def _range_override(value_range: tuple[Any, Any]) -> dict[str, Any]:
    low, high = value_range
    return {"rmin": np.float32(np.min(low)), "rmax": np.float32(np.max(high))}


def _encode_examples(
    model: TextModel, examples: TaskInputs
) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]] | None]:
    """Return the token ids of every sequence, and segment ids if the encoder uses them."""
    if not isinstance(model, FineTunedModel):
        return model.encode_ids([str(text) for text in examples]), None
    encoded = model.output_decoder.encode(model.example_encoder, as_examples(examples, model.task))
    segments = (
        [example.segment_ids or [] for example in encoded]
        if model.example_encoder.has_segments
        else None
    )
    return [example.token_ids for example in encoded], segments


def _unpadded_batches(
    sequences: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None,
    input_names: Sequence[str],
) -> Iterator[GraphInputs]:
    by_length = defaultdict[int, list[int]](list)
    for index, token_ids in enumerate(sequences):
        by_length[len(token_ids)].append(index)
    for indices in by_length.values():
        batch_segments = None if segments is None else [segments[index] for index in indices]
        batch_sequences = [sequences[index] for index in indices]
        for batch in text_batches(batch_sequences, 0, torch.device("cpu"), batch_segments):
            yield make_graph_inputs(batch, input_names)
