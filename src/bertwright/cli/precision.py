"""``--precision``: in what a model computes, for every verb that uses one."""

from typing import Annotated

import typer

from bertwright.axes import ReadingPrecision

Precision = Annotated[
    ReadingPrecision | None,
    typer.Option(
        help="None: bf16 where the processor multiplies it natively, and of an ONNX folder its "
        "graph in 8 bits."
    ),
]
