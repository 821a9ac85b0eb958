"""Muon: momentum whose matrices are made orthogonal (Jordan et al. 2024).

Each hidden matrix moves along the nearest semi-orthogonal matrix of its momentum, found by five
Newton-Schulz iterations in the precision of the run. A fused projection is taken apart into its
canonical matrices first. Tables, biases, norms and gates are left to AdamW.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.machine.compiled import Compilable
from bertwright.optimisers.adam import AdamFamily, AdamUpdate, decoupled_update
from bertwright.optimisers.optimiser import Update
from bertwright.optimisers.parameters import MasterParameters

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration: singular values end between about 0.7 and 1.2 (Jordan et al. 2024)."""

ITERATIONS = 5


class Muon(AdamFamily):
    """Orthogonalised momentum for hidden matrices, AdamW for the rest.

    ``rate`` and the moments are AdamW's; ``matrix_rate`` is the learning rate of the matrices,
    times sqrt(max(1, rows / columns)); ``decay`` shrinks both by its product with their rate.
    """

    kind: Literal["muon"] = "muon"
    matrix_rate: float = Field(default=0.02, gt=0)
    momentum: float = Field(default=0.95, ge=0, lt=1)

    def build(self, parameters: MasterParameters) -> "MuonUpdate":
        return MuonUpdate(self, parameters)


class MuonUpdate(Update):
    """Muon over the matrices and AdamW over everything else."""

    def __init__(self, settings: Muon, parameters: MasterParameters) -> None:
        self._settings = settings
        self._parameters = parameters
        self._range = parameters.range("matrix")
        self._momentum = torch.zeros(self._range.stop, device=parameters.master.device)
        self._direction = torch.zeros_like(self._momentum, dtype=parameters.compute.dtype)
        self._rest = AdamUpdate(settings, parameters, ("table",), decoupled_update)
        self._advance, self._apply = Compilable(advance), Compilable(apply)

    def compilables(self) -> Sequence[Compilable[..., None]]:
        return (*self._rest.compilables(), self._advance, self._apply)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float, clip: Tensor) -> None:
        settings, parameters, where = self._settings, self._parameters, self._range
        self._rest.step(gradient, rate, clip)
        if where.stop == 0:
            return
        device = parameters.master.device
        momentum = torch.tensor(settings.momentum, device=device)
        trained = parameters.trained(where, settings.layer_decay)
        for part, _ in trained:
            self._advance(
                self._momentum[part], self._direction[part], gradient[part], momentum, clip
            )
        for matrices in self._matrices_by_shape():
            rows, columns = matrices[0].shape
            scale = max(1.0, rows / columns) ** 0.5
            found = orthogonal(torch.stack(matrices)) * scale
            for matrix, new in zip(matrices, found, strict=True):
                matrix.copy_(new)
        for part, factor in trained:
            scaled = settings.matrix_rate * rate * factor
            self._apply(
                parameters.master[part],
                parameters.compute[part] if parameters.precision == "bf16" else None,
                self._direction[part],
                torch.tensor((scaled, scaled * settings.decay), device=device),
            )

    def state(self) -> dict[str, Tensor]:
        momentum = self._parameters.views(self._momentum)
        return {
            **{f"momentum.{name}": view for name, view in momentum.items()},
            **self._rest.state(),
        }

    def _matrices_by_shape(self) -> list[list[Tensor]]:
        """The canonical matrices as views into the direction, those of one shape together."""
        groups: dict[tuple[int, ...], list[Tensor]] = {}
        views = self._parameters.views(self._direction)
        for slot in self._parameters.slots_of("matrix"):
            for part in views[slot.name].chunk(slot.parts):
                groups.setdefault(tuple(part.shape), []).append(part)
        return list(groups.values())


def advance(
    momentum: Tensor, direction: Tensor, gradient: Tensor, keep: Tensor, clip: Tensor
) -> None:
    """Add the gradient to the momentum, and look one step ahead (Nesterov), in place."""
    gradient = gradient.float() * clip
    new = keep * momentum + gradient
    momentum.copy_(new)
    direction.copy_(gradient + keep * new)


def apply(master: Tensor, compute: Tensor | None, direction: Tensor, scalars: Tensor) -> None:
    """Move along the direction by the first scalar, shrink by the second, in place."""
    rate, shrink = scalars.unbind()
    updated = master * (1 - shrink) - rate * direction.float()
    master.copy_(updated)
    if compute is not None:
        compute.copy_(updated)


def orthogonal(matrices: Tensor) -> Tensor:
    """Of (K, rows, columns): matrices with the same singular vectors, their singular values
    near 1 (Newton-Schulz on the smaller side)."""
    a, b, c = COEFFICIENTS
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = wide / (torch.linalg.matrix_norm(wide.float(), keepdim=True) + 1e-7).to(wide.dtype)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide is matrices else x.mT
