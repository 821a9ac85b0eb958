"""A student's variables and its teacher's, led to each other by few matrices (Zhao et al. 2019)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertwright.encoder.roles import Role, roles
from bertwright.errors import UserError
from bertwright.randomness import key

Variables = Mapping[str, tuple[Tensor, int]]
"""Parameters by name, and how many matrices each holds, one above the other."""


def variables_of(**modules: nn.Module | None) -> dict[str, tuple[Tensor, int]]:
    """The parameters of modules; a bias holds as many vectors as its weight matrices."""
    found: dict[str, tuple[Tensor, int]] = {}
    for prefix, module in modules.items():
        if module is not None:
            of = roles(module)
            for name, own in module.named_parameters():
                weight = f"{name.removesuffix('bias')}weight"
                found[f"{prefix}.{name}"] = own, of.get(weight, of[name]).parts
    return found


class SharedProjections(nn.Module):
    """How far a student's variables are from its teacher's led down, and the teacher's from the
    student's led up: |U t V' - s|^2 and |U' s V - t|^2, the mean over the numbers of a variable and
    then over variables.

    All rows that are led from one size to another share a matrix U, all columns a matrix V,
    whatever the layer; where sizes are equal there is none. Vectors are columns of rows.
    """

    def __init__(self, student: Variables, teacher: Variables) -> None:
        super().__init__()
        if odd := sorted(student.keys() ^ teacher.keys()):
            raise UserError(
                f"variables are compared one by one, and {odd[0]} is on one side only: choose a "
                f"student with the architecture of its teacher, of other widths alone"
            )
        self._pairs: list[tuple[Tensor, Tensor, int]] = []
        self.rows, self.columns = nn.ParameterDict(), nn.ParameterDict()
        for name, (own, parts) in student.items():
            other, other_parts = teacher[name]
            if own.ndim != other.ndim or parts != other_parts:
                raise UserError(f"{name} has another form in the student than in its teacher")
            self._pairs.append((own, other, parts))
            small, large = _in_parts(own, parts), _in_parts(other, parts)
            for axis, kept in ((1, self.rows), (2, self.columns)):
                sizes = small.shape[axis], large.shape[axis]
                if sizes[0] != sizes[1]:
                    kept.setdefault(_name(*sizes), nn.Parameter(torch.empty(sizes)))

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """All are matrices."""
        return {name: Role("matrix") for name, _ in self.named_parameters()}

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        """Draw the matrices: U U' is about the identity where the teacher is much larger."""
        for name, matrix in self.named_parameters():
            generator = torch.Generator().manual_seed(key(seed, "variables", name) >> 1)
            drawn = torch.randn(matrix.shape, generator=generator)
            matrix.copy_(drawn * matrix.shape[1] ** -0.5)

    def forward(self) -> Tensor:
        """0-d float32."""
        total = torch.zeros((), device=self._pairs[0][0].device)
        for own, other, parts in self._pairs:
            small, large = (_in_parts(each, parts).float() for each in (own, other))
            rows = self._matrix(self.rows, small.shape[1], large.shape[1])
            columns = self._matrix(self.columns, small.shape[2], large.shape[2])
            down = _led(large, rows, columns) - small
            up = _led(small, _turned(rows), _turned(columns)) - large
            total = total + down.square().mean() + up.square().mean()
        return total / len(self._pairs)

    def _matrix(self, kept: nn.ParameterDict, small: int, large: int) -> Tensor | None:
        return None if small == large else kept[_name(small, large)].float()


def _name(small: int, large: int) -> str:
    return f"{small}-of-{large}"


def _in_parts(variable: Tensor, parts: int) -> Tensor:
    """(parts, rows, columns), a vector as one column."""
    return variable.reshape(parts, variable.shape[0] // parts, -1)


def _turned(matrix: Tensor | None) -> Tensor | None:
    return None if matrix is None else matrix.T


def _led(variable: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """U x V' of x (parts, r, c), where there are such matrices."""
    led = variable if rows is None else rows @ variable
    return led if columns is None else led @ columns.T
