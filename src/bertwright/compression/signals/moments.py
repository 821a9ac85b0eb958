"""The mean and the variance of a teacher's states, which a comparison of normalised states does not
see (Sun et al. 2020, section 3.4: MobileBERT)."""

from typing import Literal

from torch import Tensor

from bertwright.compression.signals.by_layer import LayerSignal, OfStateLayers
from bertwright.compression.signals.signal import Comparison
from bertwright.encoder.choice import EncoderChoice


class Moments(LayerSignal):
    """Of each state, over its width: the squared difference of the ``mean``, or the absolute one of
    the ``variance``; summed over pairs of layers, in the mean over places.

    The released code takes the moments of the teacher over all its layers at once; here they are
    those of the layer that the student's is held against.
    """

    kind: Literal["moments"] = "moments"
    of: Literal["mean", "variance"] = "mean"

    def between(self, student: EncoderChoice, teacher: EncoderChoice) -> Comparison:
        depths = len(student.widths) - 1, len(teacher.widths) - 1
        return OfMoments(self, self.layers.between(*depths))


class OfMoments(OfStateLayers):
    """Of :class:`Moments`."""

    def __init__(self, choice: Moments, pairs: list[tuple[int, int]]) -> None:
        super().__init__(choice.order, pairs)
        self.choice = choice

    def apart(self, number: int, own: Tensor, others: Tensor) -> Tensor:
        own = own.float()
        if self.choice.of == "mean":
            return (own.mean(-1) - others.mean(-1)).square().sum()
        return (own.var(-1, unbiased=False) - others.var(-1, unbiased=False)).abs().sum()
