"""The distance between the parameters of a student and its teacher, with shared projections.

Zhao et al. (2019).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key
from bertwright.modules.parameter_roles import ParameterRole, get_parameter_roles

NamedVariables = Mapping[str, tuple[Tensor, int]]
"""Parameters by name, with the number of matrices stacked in each."""


def named_variables(**modules: nn.Module | None) -> dict[str, tuple[Tensor, int]]:
    """Return the parameters of modules; a bias has as many parts as its weight."""
    variables: dict[str, tuple[Tensor, int]] = {}
    for prefix, module in modules.items():
        if module is not None:
            roles = get_parameter_roles(module)
            for name, parameter in module.named_parameters():
                weight = f"{name.removesuffix('bias')}weight"
                num_parts = roles.get(weight, roles[name]).num_parts
                variables[f"{prefix}.{name}"] = parameter, num_parts
    return variables


class SharedProjections(nn.Module):
    """The distance between a student's parameters s and its teacher's parameters t.

    It is |U t V' - s|^2 + |U' s V - t|^2: the mean over the entries of a parameter, then over
    parameters.

    All row dimensions projected between the same two sizes share a matrix U, all column dimensions
    a matrix V, regardless of the layer; equal sizes need no projection. Vectors are treated as
    single columns.
    """

    def __init__(self, student: NamedVariables, teacher: NamedVariables) -> None:
        super().__init__()
        if unmatched := sorted(student.keys() ^ teacher.keys()):
            raise UserError(
                f"the projection loss compares parameter by parameter, and {unmatched[0]} exists "
                f"on one side only: choose a student of the teacher's architecture that differs "
                f"in widths only"
            )
        self._pairs: list[tuple[Tensor, Tensor, int]] = []
        self.rows, self.columns = nn.ParameterDict(), nn.ParameterDict()
        for name, (variable, num_parts) in student.items():
            other, other_parts = teacher[name]
            if variable.ndim != other.ndim or num_parts != other_parts:
                raise UserError(f"{name} has another form in the student than in its teacher")
            self._pairs.append((variable, other, num_parts))
            small, large = _split_matrices(variable, num_parts), _split_matrices(other, num_parts)
            for axis, projections in ((1, self.rows), (2, self.columns)):
                sizes = small.shape[axis], large.shape[axis]
                if sizes[0] != sizes[1]:
                    projections.setdefault(
                        _projection_name(*sizes), nn.Parameter(torch.empty(sizes))
                    )

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the role of every parameter: a matrix."""
        return {name: ParameterRole("matrix") for name, _ in self.named_parameters()}

    @torch.no_grad()
    def init(self, seed: int) -> None:
        """Initialise the matrices so that U U' is about the identity for a much larger teacher."""
        for name, matrix in self.named_parameters():
            generator = torch.Generator().manual_seed(stream_key(seed, "variables", name) >> 1)
            drawn = torch.randn(matrix.shape, generator=generator)
            matrix.copy_(drawn * matrix.shape[1] ** -0.5)

    def forward(self) -> Tensor:
        """Return the distance, 0-d float32."""
        total = torch.zeros((), device=self._pairs[0][0].device)
        for student, teacher, num_parts in self._pairs:
            small, large = (_split_matrices(v, num_parts).float() for v in (student, teacher))
            rows = self._projection(self.rows, small.shape[1], large.shape[1])
            columns = self._projection(self.columns, small.shape[2], large.shape[2])
            down = _project(large, rows, columns) - small
            up = _project(small, _transposed(rows), _transposed(columns)) - large
            total = total + down.square().mean() + up.square().mean()
        return total / len(self._pairs)

    def _projection(
        self, projections: nn.ParameterDict, student_size: int, teacher_size: int
    ) -> Tensor | None:
        return (
            None
            if student_size == teacher_size
            else projections[_projection_name(student_size, teacher_size)].float()
        )


def _projection_name(student_size: int, teacher_size: int) -> str:
    return f"{student_size}-of-{teacher_size}"


def _split_matrices(variable: Tensor, num_parts: int) -> Tensor:
    """Return a parameter as matrices (parts, rows, columns); a vector is one column."""
    return variable.reshape(num_parts, variable.shape[0] // num_parts, -1)


def _transposed(matrix: Tensor | None) -> Tensor | None:
    return None if matrix is None else matrix.T


def _project(variable: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    """Return U x V' for x (parts, r, c); None stands for the identity."""
    projected = variable if rows is None else rows @ variable
    return projected if columns is None else projected @ columns.T
