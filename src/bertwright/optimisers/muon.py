"""Muon: momentum with orthogonalised matrices (Jordan et al. 2024).

Each matrix of the blocks moves along the semi-orthogonal matrix nearest to its momentum, computed
by five Newton-Schulz iterations in the precision of the run. A fused projection is first split into
separate matrices. Tables, biases, norms and gates use AdamW. AdaMuon (Si et al. 2025) also adapts
the step of every element, and has Adam's root mean square.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.optimisers.adam import AdamFamilyConfig, AdamOptimiser, adamw_step
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.runtime.compiled_functions import CompilableFunction

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration, which moves singular values to about 0.7 to 1.2.

Source: Jordan et al. 2024.
"""

ITERATIONS = 5

ADAM_RMS = 0.2
"""Root mean square of Adam's changes at unit learning rate (Liu et al. 2025, section 2.2)."""


class MuonFamilyConfig(AdamFamilyConfig):
    """Settings of all variants of Muon."""

    matrix_learning_rate: float = Field(default=0.02, gt=0)
    momentum: float = Field(default=0.95, ge=0, lt=1)


class MuonConfig(MuonFamilyConfig):
    """Muon: orthogonalised momentum for the matrices of the blocks, AdamW for all other parameters.

    ``learning_rate`` and the moments are AdamW's. The matrices have ``matrix_learning_rate`` times
    sqrt(max(1, rows / columns)). ``weight_decay`` is multiplied by the learning rate of the
    parameter.
    """

    kind: Literal["muon"] = "muon"

    def build(self, parameters: MasterParameters) -> "MuonOptimiser":
        return MuonOptimiser(self, parameters)


class AdaMuonConfig(MuonFamilyConfig):
    """AdaMuon: Muon with adapted elements, for the matrices of the blocks (Si et al. 2025).

    The sign of the momentum is orthogonalised. The result is divided by the root of its second
    moment, whose decay is ``momentum`` too, and scaled to a root mean square of 0.2, that of Adam.
    So the matrices have learning rates like AdamW's.
    """

    kind: Literal["adamuon"] = "adamuon"
    matrix_learning_rate: float = Field(default=5e-3, gt=0)

    def build(self, parameters: MasterParameters) -> "AdaMuonOptimiser":
        return AdaMuonOptimiser(self, parameters)


class MuonOptimiser(Optimiser):
    """Muon over the matrices and AdamW over everything else."""

    def __init__(self, config: MuonFamilyConfig, parameters: MasterParameters) -> None:
        self._config = config
        self._parameters = parameters
        self._range = parameters.range("matrix")
        self._momentum = torch.zeros(self._range.stop, device=parameters.master.device)
        self._direction = torch.zeros_like(self._momentum, dtype=parameters.compute_dtype)
        self._adam = AdamOptimiser(config, parameters, ("table",), adamw_step)
        self._update_momentum, self._apply_direction = (
            CompilableFunction(update_momentum),
            CompilableFunction(apply_direction),
        )

    def compilable_functions(self) -> Sequence[CompilableFunction[..., None]]:
        return (*self._adam.compilable_functions(), *super().compilable_functions())

    @torch.no_grad()
    def step(self, gradient: Tensor, lr_factor: float, clip_factor: Tensor) -> None:
        settings, parameters, elements = self._config, self._parameters, self._range
        self._adam.step(gradient, lr_factor, clip_factor)
        if elements.stop == 0:
            return
        device = parameters.master.device
        momentum = torch.tensor(settings.momentum, device=device)
        trained = parameters.trained_ranges(elements, settings.layer_decay)
        for span, _ in trained:
            self._update_momentum(
                self._momentum[span], self._direction[span], gradient[span], momentum, clip_factor
            )
        self._orthogonalise_directions()
        for span, factor in trained:
            scaled = settings.matrix_learning_rate * lr_factor * factor
            self._apply_direction(
                parameters.master[span],
                parameters.compute_slice(span),
                self._direction[span],
                torch.tensor((scaled, scaled * settings.weight_decay), device=device),
            )

    def state_dict(self) -> dict[str, Tensor]:
        views = self._parameters.state_views({"momentum": self._momentum})
        return {**views, **self._adam.state_dict()}

    def _orthogonalise_directions(self) -> None:
        """Set the direction of every matrix to its change at unit learning rate."""
        for (matrices,) in self._parameters.matrix_groups(self._direction):
            rows, columns = matrices[0].shape
            scale = max(1.0, rows / columns) ** 0.5
            directions = orthogonalise(torch.stack(matrices)) * scale
            for matrix, direction in zip(matrices, directions, strict=True):
                matrix.copy_(direction)


class AdaMuonOptimiser(MuonOptimiser):
    """AdaMuon over the matrices, with their second moments, and AdamW over everything else."""

    def __init__(self, config: AdaMuonConfig, parameters: MasterParameters) -> None:
        super().__init__(config, parameters)
        self._second = torch.zeros_like(self._momentum)

    def state_dict(self) -> dict[str, Tensor]:
        return {**super().state_dict(), **self._parameters.state_views({"second": self._second})}

    def _orthogonalise_directions(self) -> None:
        epsilon, new = self._config.epsilon, 1 - self._config.momentum
        groups = self._parameters.matrix_groups(self._momentum, self._second, self._direction)
        for momenta, seconds, directions in groups:
            signs = torch.stack(momenta).sign().to(self._direction.dtype)
            orthogonal = orthogonalise(signs).float()
            for matrix, second, direction in zip(orthogonal, seconds, directions, strict=True):
                second.lerp_(matrix.square(), new)
                adapted = matrix / (second.sqrt() + epsilon)
                rms = adapted.square().mean().sqrt().clamp(min=epsilon)
                direction.copy_(adapted * (ADAM_RMS / rms))


def update_momentum(
    momentum: Tensor,
    direction: Tensor,
    gradient: Tensor,
    momentum_factor: Tensor,
    clip_factor: Tensor,
) -> None:
    """Add the gradient to the momentum, and compute the Nesterov direction, in place."""
    gradient = gradient.float() * clip_factor
    new = momentum_factor * momentum + gradient
    momentum.copy_(new)
    direction.copy_(gradient + momentum_factor * new)


def apply_direction(
    master: Tensor, compute: Tensor | None, direction: Tensor, scalars: Tensor
) -> None:
    """Move along the direction by the first scalar, and shrink by the second, in place."""
    rate, shrink = scalars.unbind()
    updated = master * (1 - shrink) - rate * direction.float()
    master.copy_(updated)
    if compute is not None:
        compute.copy_(updated)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (K, rows, columns) with the same singular vectors and values near 1.

    The Newton-Schulz iteration works on the smaller side.
    """
    a, b, c = COEFFICIENTS
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = wide / (torch.linalg.matrix_norm(wide.float(), keepdim=True) + 1e-7).to(wide.dtype)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide is matrices else x.mT
