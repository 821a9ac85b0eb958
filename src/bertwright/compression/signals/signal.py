"""The axis of signals: what a student hears of its teacher, and how far it is from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.choice import EncoderChoice
from bertwright.schedules import Constant, Value


@dataclass(frozen=True)
class Heard:
    """A student and its teacher at the same rows.

    Attributes:
        outputs, taught: (M, K) float32, what they say in numbers.
        logits, taught_logits: (N, C) float32, a softmax over C is what they say; None where numbers
            are all that they say.
        own, others: values of their encoders by name, (B, ...) each.
        real: (B, L) bool, the places of rows that are no fillers and no padding.
        progress: of the training, from 0 to 1.
    """

    outputs: Tensor
    taught: Tensor
    logits: Tensor | None
    taught_logits: Tensor | None
    own: Mapping[str, Tensor]
    others: Mapping[str, Tensor]
    real: Tensor
    progress: float


@dataclass(frozen=True)
class Sizes:
    """Of some rows: how many they are, how many of their places are real, and at how many places
    something is asked, by weight."""

    rows: float
    places: float
    asked: float


class Comparison(nn.Module):
    """How far two networks of known sizes are from each other; its parameters are trained with the
    student.

    Attributes:
        sites: what it listens to in the student; ``other_sites`` in the teacher.
        hears_outputs: whether it compares what the two answer.
    """

    sites: Sequence[str] = ()
    other_sites: Sequence[str] = ()
    hears_outputs: ClassVar[bool] = False

    def count(self, sizes: Sizes) -> float:
        """What its sum over rows of these sizes is divided by."""
        raise TypeError(f"{type(self).__name__} compares nothing")

    def forward(self, heard: Heard) -> Tensor:
        """The sum over what it counts, 0-d float32."""
        raise TypeError(f"{type(self).__name__} compares nothing")

    def begin(self, seed: int) -> None:
        """Draw what is trained anew."""


class Signal(Choice):
    """The axis; ``weight`` is that in the total loss."""

    weight: Value = Constant(value=1.0)

    def between(self, student: EncoderChoice, teacher: EncoderChoice) -> Comparison:
        """The comparison of two encoders; UserError where they cannot be compared so."""
        raise TypeError(f"{type(self).__name__} is an axis, not a signal")
