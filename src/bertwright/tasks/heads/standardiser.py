"""Standardisation of a frozen encoder's hidden states, for training a new head on them.

Hidden states are far from the origin, and further in some directions: in a small pre-norm encoder
three quarters of their energy are the same at every position. A head initialised for inputs with
mean 0 and deviation 1 learns slowly from them. After training, the standardisation is folded into
the weights.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_RELATIVE_STD = 1e-2
"""Lower bound of the deviation, relative to the median, so that noise is not amplified."""

LinearParameters = Sequence[tuple[Tensor, Tensor]]
"""Weight (O, W) and bias (O,) of each linear map that reads the hidden states."""


@dataclass(frozen=True)
class Standardiser:
    """Mean and standard deviation of features: (W,) float32 each."""

    mean: Tensor
    std: Tensor

    @staticmethod
    def fit(features: Iterable[Tensor]) -> "Standardiser":
        """Return the standardiser that gives these features (k, W) mean 0 and deviation 1."""
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for chunk in features:
            chunk = chunk.double()
            count += len(chunk)
            total, squares = total + chunk.sum(0), squares + chunk.square().sum(0)
        mean = total / count
        std = (squares / count - mean.square()).clamp(min=0).sqrt()
        min_std = MIN_RELATIVE_STD * std.median().clamp(min=torch.finfo(torch.float32).tiny)
        return Standardiser(mean.float(), std.clamp(min=min_std).float())

    def to(self, device: torch.device) -> "Standardiser":
        """Return the standardiser on a device."""
        return Standardiser(self.mean.to(device), self.std.to(device))

    def __call__(self, features: Tensor) -> Tensor:
        """Standardise features (M, W), keeping their dtype."""
        return ((features.float() - self.mean) / self.std).to(features.dtype)

    @torch.no_grad()
    def fold_into(self, layers: LinearParameters) -> None:
        """Convert maps of standardised features into equivalent maps of the raw features."""
        for weight, bias in layers:
            weight.div_(self.std.to(weight.device))
            bias.sub_(weight @ self.mean.to(weight.device))

    @torch.no_grad()
    def unfold_from(self, layers: LinearParameters) -> None:
        """Convert maps of raw features into maps of standardised ones: the inverse of folding."""
        for weight, bias in layers:
            bias.add_(weight @ self.mean.to(weight.device))
            weight.mul_(self.std.to(weight.device))
