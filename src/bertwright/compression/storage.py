"""Matrices as they are written to a disk: all numbers or those that are not 0, in 32 bits or in 8.

What a form takes is known from a matrix before anything is written, and a file is as large as its
parts and their names.
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

from bertwright.files import atomic_file
from bertwright.model.grids import Grid

COLUMN_BYTES = 4


@dataclass(frozen=True)
class Form:
    """How matrices (rows, columns) are written.

    Attributes:
        places: of ``all`` numbers; or of those that are not 0, as a ``bitmap`` of one bit for each
            place, or by ``columns``, a number for each of them and one for each row (CSR).
        values: in ``float32``, or in ``int8`` with a scale for each row.
    """

    places: Literal["all", "bitmap", "columns"] = "all"
    values: Literal["float32", "int8"] = "float32"

    def num_bytes(self, matrix: Tensor) -> int:
        """What a matrix takes, names and shapes aside."""
        rows, size = len(matrix), matrix.numel()
        kept = size if self.places == "all" else int(matrix.count_nonzero())
        values = 4 * kept if self.values == "float32" else kept + 4 * rows
        by_columns = COLUMN_BYTES * (kept + rows)
        return values + {"all": 0, "bitmap": -(-size // 8), "columns": by_columns}[self.places]

    def packed(self, matrix: Tensor) -> dict[str, Tensor]:
        """The parts of a matrix, by name."""
        found: dict[str, Tensor] = {}
        there = matrix != 0
        if self.places == "bitmap":
            found["bitmap"] = torch.from_numpy(np.packbits(there.numpy()))
        elif self.places == "columns":
            found["columns"] = there.nonzero()[:, 1].int()
            found["counts"] = there.sum(1).int()
        values = matrix.float()
        if self.values == "int8":
            grid = Grid(8, 1, matrix.shape[1])
            groups = grid.cut(values)
            steps = grid.steps(groups)
            values = grid.joined(steps.levels(groups), matrix.shape).to(torch.int8)
            found["scales"] = steps.scale.flatten()
        found["values"] = values.clone() if self.places == "all" else values[there]
        return found

    def unpacked(self, parts: Mapping[str, Tensor], rows: int, columns: int) -> Tensor:
        """The matrix of such parts, float32."""
        values = parts["values"].float()
        if self.places == "all":
            matrix = values.clone()
        else:
            matrix = torch.zeros(rows, columns)
            matrix[self._there(parts, rows, columns)] = values
        return matrix * parts["scales"][:, None] if self.values == "int8" else matrix

    def _there(self, parts: Mapping[str, Tensor], rows: int, columns: int) -> Tensor:
        if self.places == "bitmap":
            bits = np.unpackbits(parts["bitmap"].numpy(), count=rows * columns)
            return torch.from_numpy(bits).bool().view(rows, columns)
        there = torch.zeros(rows, columns, dtype=torch.bool)
        row = torch.arange(rows).repeat_interleave(parts["counts"].long())
        there[row, parts["columns"].long()] = True
        return there


def save_matrices(path: Path, matrices: Mapping[str, Tensor], form: Form) -> int:
    """Write matrices in a form; the bytes of the file that are names and shapes."""
    parts = {
        f"{name}.{part}": tensor
        for name, matrix in matrices.items()
        for part, tensor in form.packed(matrix).items()
    }
    shapes = {name: "x".join(map(str, matrix.shape)) for name, matrix in matrices.items()}
    with atomic_file(path) as temporary:
        save_file(parts, str(temporary), metadata=shapes)
    with open(path, "rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def load_matrices(path: Path, form: Form) -> dict[str, Tensor]:
    """What :func:`save_matrices` has written in a form."""
    with safe_open(str(path), "pt") as file:
        parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shapes: dict[str, str] = file.metadata()
    found: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        rows, columns = map(int, shape.split("x"))
        own = {k.removeprefix(f"{name}."): t for k, t in parts.items() if k.startswith(f"{name}.")}
        found[name] = form.unpacked(own, rows, columns)
    return found
