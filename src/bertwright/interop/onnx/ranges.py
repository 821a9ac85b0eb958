"""Between which values the inputs of matrices lie in a graph, as rows that are read ahead show it.

A graph that knows them need not look for them in every batch, and rounds a row as it is rounded by
itself, whatever stands beside it. What lies outside of them is cut off.
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

from bertwright.errors import UserError
from bertwright.interop.onnx.about import weights_beside
from bertwright.interop.onnx.graph import given_to, inputs_of
from bertwright.interop.onnx.inputs import Given
from bertwright.model.reading import read_batches
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import Asked, FineTuned, as_examples

RangeObserver = Literal["extremes", "percentile", "entropy"]
"""What is taken for a range: from the least to the greatest value that is seen; without the
hundred-thousandth part of them that lies farthest from zero; as wide as the distribution of
magnitudes differs least from itself when it is rounded."""

PERCENTILE = 99.999
"""Of the values. A hundredth that is cut off, which other networks bear, costs a sentence encoder a
quarter of the cosine of its vectors: a few large values are what its states hang on."""

PRODUCTS = ("MatMul", "Gemm")

OPERATORS = (*PRODUCTS, "Gather")
"""What is computed in 8 bits where a matrix or a table of weights is met."""


ROWS, PLACES = 256, 16_384
"""Texts or examples that are read, at most, where there are more; and so many places, roughly,
where rows are long: a quarter of a minute of a core for six blocks of 384."""


@dataclass(frozen=True)
class Ranges:
    """How ranges are found: batches of rows of one length each, none of them padded, and by which
    observer; ``num_rows`` are in them."""

    batches: Sequence[Given]
    num_rows: int
    observer: RangeObserver = "extremes"

    @staticmethod
    def of(model: TextModel, asked: Asked, observer: RangeObserver = "extremes") -> "Ranges":
        """From texts, or examples of the task of a fine-tuned model.

        Errors: UserError where there are none.
        """
        rows, segments = _rows(model, asked)
        if not rows:
            raise UserError("there is no text to find ranges by: name others")
        ends = np.cumsum([len(row) for row in rows])
        rows = rows[: int(np.searchsorted(ends, PLACES)) + 1]
        inputs = inputs_of(model.model.recipe)
        return Ranges(list(_unpadded(rows, segments, inputs)), len(rows), observer)

    @property
    def told(self) -> str:
        """How they were found, in words."""
        return f"{self.observer} of {self.num_rows} rows"

    def overrides(self, graph: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
        """The least and the greatest value of every tensor that meets weights, as onnxruntime takes
        them; ``folder`` is room for what it writes on the way."""
        from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

        create: Any = create_calibrator
        methods: Any = CalibrationMethod
        method, settings = {
            "extremes": (methods.MinMax, {}),
            "percentile": (methods.Percentile, {"percentile": PERCENTILE}),
            "entropy": (methods.Entropy, {}),
        }[self.observer]
        with redirect_stdout(io.StringIO()):  # it tells of every batch
            calibrator = create(
                str(graph),
                OPERATORS,
                augmented_model_path=str(folder / "watched.onnx"),
                calibrate_method=method,
                use_external_data_format=weights_beside(graph),
                extra_options=settings,
            )
            for batch in self.batches:
                calibrator.collect_data(Feed([batch]))
            found = calibrator.compute_data()
        return {name: [_bounds(known.range_value)] for name, known in found.items()}


class Feed:
    """Batches as onnxruntime asks for them."""

    def __init__(self, batches: Sequence[Given]) -> None:
        self._left = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        """The next of them, None behind the last."""
        batch = next(self._left, None)
        return None if batch is None else dict(batch)


def _bounds(known: tuple[Any, Any]) -> dict[str, Any]:
    low, high = known
    return {"rmin": np.float32(np.min(low)), "rmax": np.float32(np.max(high))}


def _rows(
    model: TextModel, asked: Asked
) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]] | None]:
    """The pieces of every row, and their segments where the encoder is told them."""
    if not isinstance(model, FineTuned):
        return model.rows([str(text) for text in asked]), None
    rows = model.answering.rows(model.maker, as_examples(asked, model.task))
    segments = [row.segments or [] for row in rows] if model.maker.segmented else None
    return [row.pieces for row in rows], segments


def _unpadded(
    rows: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]] | None,
    inputs: Sequence[str],
) -> Iterator[Given]:
    by_length = defaultdict[int, list[int]](list)
    for number, row in enumerate(rows):
        by_length[len(row)].append(number)
    for numbers in by_length.values():
        own = None if segments is None else [segments[number] for number in numbers]
        alike = [rows[number] for number in numbers]
        for batch in read_batches(alike, 0, torch.device("cpu"), own):
            yield given_to(batch, inputs)
