"""Matrices in files: dense or sparse, in 32 or 8 bits.

The size in a format is known before anything is written; a file adds names and shapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertwright.core.files import atomic_file
from bertwright.models.quantized_weights import QuantizationGrid

COLUMN_BYTES = 4


@dataclass(frozen=True)
class MatrixFormat:
    """A format of matrices (rows, columns).

    Attributes:
        layout: ``all`` numbers; or the nonzero ones, with a ``bitmap`` of one bit per position, or
            with their ``columns``, one number for each and a count per row (CSR).
        values: ``float32``, or ``int8`` with a scale per row.
    """

    layout: Literal["all", "bitmap", "columns"] = "all"
    values: Literal["float32", "int8"] = "float32"

    def num_bytes(self, matrix: Tensor) -> int:
        """Return the size of a matrix, without names and shapes."""
        rows, size = len(matrix), matrix.numel()
        count = size if self.layout == "all" else int(matrix.count_nonzero())
        values = 4 * count if self.values == "float32" else count + 4 * rows
        columns = COLUMN_BYTES * (count + rows)
        return values + {"all": 0, "bitmap": -(-size // 8), "columns": columns}[self.layout]

    def pack(self, matrix: Tensor) -> dict[str, Tensor]:
        """Return the parts of a matrix by name."""
        parts: dict[str, Tensor] = {}
        mask = matrix != 0
        if self.layout == "bitmap":
            parts["bitmap"] = torch.from_numpy(np.packbits(mask.numpy()))
        elif self.layout == "columns":
            parts["columns"] = mask.nonzero()[:, 1].int()
            parts["counts"] = mask.sum(1).int()
        values = matrix.float()
        if self.values == "int8":
            grid = QuantizationGrid(8, 1, matrix.shape[1])
            groups = grid.to_groups(values)
            steps = grid.steps(groups)
            values = grid.from_groups(steps.quantize(groups), matrix.shape).to(torch.int8)
            parts["scales"] = steps.scale.flatten()
        parts["values"] = values.clone() if self.layout == "all" else values[mask]
        return parts

    def unpack(self, parts: Mapping[str, Tensor], rows: int, columns: int) -> Tensor:
        """Return the matrix of some parts, float32."""
        values = parts["values"].float()
        if self.layout == "all":
            matrix = values.clone()
        else:
            matrix = torch.zeros(rows, columns)
            matrix[self._nonzero_mask(parts, rows, columns)] = values
        return matrix * parts["scales"][:, None] if self.values == "int8" else matrix

    def _nonzero_mask(self, parts: Mapping[str, Tensor], rows: int, columns: int) -> Tensor:
        if self.layout == "bitmap":
            bits = np.unpackbits(parts["bitmap"].numpy(), count=rows * columns)
            return torch.from_numpy(bits).bool().view(rows, columns)
        mask = torch.zeros(rows, columns, dtype=torch.bool)
        indices = torch.arange(rows).repeat_interleave(parts["counts"].long())
        mask[indices, parts["columns"].long()] = True
        return mask


def save_matrices(path: Path, matrices: Mapping[str, Tensor], matrix_format: MatrixFormat) -> int:
    """Write matrices in a format; return the bytes of names and shapes."""
    parts = {
        f"{name}.{part}": tensor
        for name, matrix in matrices.items()
        for part, tensor in matrix_format.pack(matrix).items()
    }
    shapes = {name: "x".join(map(str, matrix.shape)) for name, matrix in matrices.items()}
    with atomic_file(path) as temporary:
        save_file(parts, str(temporary), metadata=shapes)
    with open(path, "rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def load_matrices(path: Path, matrix_format: MatrixFormat) -> dict[str, Tensor]:
    """Return the matrices of a file of :func:`save_matrices`."""
    with safe_open(str(path), "pt") as file:
        parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shapes: dict[str, str] = file.metadata()
    matrices: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        rows, columns = map(int, shape.split("x"))
        prefix = f"{name}."
        tensors = {k.removeprefix(prefix): t for k, t in parts.items() if k.startswith(prefix)}
        matrices[name] = matrix_format.unpack(tensors, rows, columns)
    return matrices
