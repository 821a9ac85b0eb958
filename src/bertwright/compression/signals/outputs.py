"""What a teacher answers: its whole distribution, not the best label alone (Hinton et al. 2015)."""

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.compression.signals.signal import Comparison, Heard, Signal, Sizes
from bertwright.encoder.choice import EncoderChoice


class Outputs(Signal):
    """The outputs of the head, of every place that is asked.

    ``divergence`` is T^2 KL(softmax(t/T) || softmax(s/T)) over what is chosen between: classes, yes
    and no for each of several labels, the places where an answer begins and those where it ends,
    options. ``squared`` is the distance of the outputs themselves (Tang et al. 2019), which a task
    of numbers has as well, and one of closeness between its cosines. Both are summed over what is
    chosen between; published code divides them by how many outputs there are (``mean``), which
    makes a weight another one.
    """

    kind: Literal["outputs"] = "outputs"
    distance: Literal["divergence", "squared"] = "divergence"
    temperature: float = Field(default=1.0, gt=0)
    mean: bool = False

    def between(self, student: EncoderChoice, teacher: EncoderChoice) -> Comparison:
        return OfOutputs(self)


class OfOutputs(Comparison):
    """Of :class:`Outputs`."""

    hears_outputs: ClassVar[bool] = True

    def __init__(self, choice: Outputs) -> None:
        super().__init__()
        self.choice = choice

    def count(self, sizes: Sizes) -> float:
        return sizes.asked

    def forward(self, heard: Heard) -> Tensor:
        own, others = heard.logits, heard.taught_logits
        if self.choice.distance == "squared" or own is None or others is None:
            found, number = (heard.outputs - heard.taught).square().sum(), heard.outputs.shape[-1]
        else:
            found, number = divergence(own, others, self.choice.temperature), own.shape[-1]
        return found / number if self.choice.mean else found


def divergence(outputs: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T^2 KL(taught || outputs) of logits (M, K), summed: gradients are of one size whatever T."""
    own, others = (F.log_softmax(logits / temperature, -1) for logits in (outputs, taught))
    return temperature**2 * F.kl_div(own, others, reduction="sum", log_target=True)
