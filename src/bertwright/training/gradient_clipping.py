"""Gradient clipping by global norm (Pascanu, Mikolov and Bengio 2013)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bertwright.optimisers.adam import CHUNK_SIZE
from bertwright.runtime.compiled_functions import CompilableFunction
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup


class GradientClipping:
    """Limits the gradient norm to ``max_norm``; with None it only measures the norm."""

    def __init__(self, max_norm: float | None = None) -> None:
        self.max_norm = max_norm
        self._gradient_norm = CompilableFunction(_gradient_norm, _gradient_norm_in_chunks)

    def compilables(self) -> Sequence[CompilableFunction[..., Tensor]]:
        """Return the functions worth compiling."""
        return (self._gradient_norm,)

    def compile(self) -> None:
        """Compute the norm in one fused pass from now on."""
        self._gradient_norm.compile()

    @torch.no_grad()
    def __call__(
        self, gradient: Tensor, holders: ProcessGroup = SINGLE_PROCESS
    ) -> tuple[Tensor, Tensor]:
        """Return the norm and the scale of a flat gradient (T,), both 0-d float32.

        ``holders`` are the processes that hold the parts of the gradient, each a different one.
        """
        norm = self._gradient_norm(gradient)
        if holders.world_size > 1:
            norm = holders.all_reduce(norm.square()).sqrt()
        if self.max_norm is None:
            return norm, torch.ones_like(norm)
        return norm, (self.max_norm / (norm + 1e-6)).clamp(max=1.0)


def _gradient_norm(gradient: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradient, dtype=torch.float32)


def _gradient_norm_in_chunks(gradient: Tensor) -> Tensor:
    """Compute the norm in chunks on the CPU, whose float32 copies stay in the cache."""
    if gradient.device.type != "cpu":
        return _gradient_norm(gradient)
    return _gradient_norm(
        torch.stack([_gradient_norm(chunk) for chunk in gradient.split(CHUNK_SIZE)])
    )
