"""Differences between the outputs of an exported model and ours."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError

OUTPUT_TOLERANCE = 1e-4
"""Maximum float32 difference, relative to the largest output (or to 1 if that is larger)."""


@dataclass
class Parity:
    """Maximum absolute difference between the outputs, and maximum absolute output."""

    max_difference: float = 0.0
    max_output: float = 0.0

    def update(self, ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
        """Add the pair of outputs for one batch."""
        # np.maximum propagates NaN.
        self.max_difference = float(np.maximum(self.max_difference, np.abs(theirs - ours).max()))
        self.max_output = float(np.maximum(self.max_output, np.abs(ours).max()))

    def require_rounding(self, other: str) -> None:
        """Raise UserError if the outputs of ``other`` differ by more than rounding."""
        if not self.max_difference <= OUTPUT_TOLERANCE * max(1.0, self.max_output):
            raise UserError(
                f"{other} differs from the model by {self.max_difference:.2g} in outputs of at "
                f"most {self.max_output:.2g}: this is a bug in bertwright, please report the recipe"
            )
