"""What a kernel of attention is asked."""

from dataclasses import dataclass

from torch import Tensor

from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.taps import Site
from bertwright.encoder.visibility import View

DROPOUT_SITE = 1
"""The dropout site of the attention weights within a block."""


@dataclass(frozen=True)
class Call:
    """One call of attention: queries, keys and values (B, H, L, d), who sees whom, dropout; a term
    of the scores, broadcast to (B, H, L, L), and their scale where it is not 1 / sqrt(d)."""

    query: Tensor
    key: Tensor
    value: Tensor
    view: View
    rate: float
    noise: Noise | None
    site: Site | None
    bias: Tensor | None = None
    scale: float | None = None
    dropout_site: int = DROPOUT_SITE
    numbers: Tensor | None = None
    """Of every weight among all of the global batch, int32, where not every place asks."""
    fuses: bool = False
    """Whether steps may be compiled into one loop, which takes its time at the first call."""

    @property
    def factor(self) -> float:
        """What products of queries and keys are multiplied with."""
        return self.query.shape[-1] ** -0.5 if self.scale is None else self.scale

    @property
    def is_square(self) -> bool:
        """Whether there are as many keys as queries: those of the same places."""
        return self.query.shape[2] == self.key.shape[2]

    @property
    def drops(self) -> bool:
        """Whether any weight is dropped in this call."""
        return self.noise is not None and self.rate > 0.0
