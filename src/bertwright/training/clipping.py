"""Clipping by the norm of the whole gradient (Pascanu, Mikolov and Bengio 2013)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertwright.machine.compiled import Compilable
from bertwright.optimisers.adam import PIECE


class Clipping:
    """Keeps the norm of a gradient at or below ``largest``; None only measures it."""

    def __init__(self, largest: float | None = None) -> None:
        self.largest = largest
        self._norm = Compilable(_norm, _norm_in_pieces)

    def compilables(self) -> Sequence[Compilable[..., Tensor]]:
        """Return the passes that repay compiling."""
        return (self._norm,)

    def compile(self) -> None:
        """Take the norm in one fused pass from now on."""
        self._norm.compile()

    @torch.no_grad()
    def __call__(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Of a flat gradient (T,): its norm, and what to multiply it with, both 0-d float32."""
        norm = self._norm(gradient)
        if self.largest is None:
            return norm, torch.ones_like(norm)
        return norm, (self.largest / (norm + 1e-6)).clamp(max=1.0)


def _norm(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient, dtype=torch.float32)


def _norm_in_pieces(gradient: Tensor) -> Tensor:
    """As :func:`_norm`, which without a compiler writes a float32 copy of the whole gradient:
    the copy of a piece stays in the cache."""
    if gradient.device.type != "cpu":
        return _norm(gradient)
    return _norm(torch.stack([_norm(piece) for piece in gradient.split(PIECE)]))
