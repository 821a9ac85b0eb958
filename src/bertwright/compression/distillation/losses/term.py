"""The axis of distillation terms: ways to compare a student with its teacher."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.vector_projection import VectorProjection
from bertwright.objectives.model_output import Loss


@dataclass(frozen=True)
class DistillationInputs:
    """The outputs and hidden values of a student and its teacher, for the same sequences.

    Attributes:
        student_outputs, teacher_outputs: (M, K) float32.
        student_logits, teacher_logits: (N, C) float32 over classes; None for regression.
        student_values, teacher_values: hidden values by tap, (B, ...).
        attention_mask: (B, L) bool, False for padding and filler sequences.
        fraction: completed fraction of the training, from 0 to 1.
        student_projection, teacher_projection: layers that map pooled vectors; None for none.
        teacher_mask: (B, L') attention mask of the teacher, if it has other tokens.
    """

    student_outputs: Tensor
    teacher_outputs: Tensor
    student_logits: Tensor | None
    teacher_logits: Tensor | None
    student_values: Mapping[str, Tensor]
    teacher_values: Mapping[str, Tensor]
    attention_mask: Tensor
    fraction: float
    student_projection: VectorProjection | None = None
    teacher_projection: VectorProjection | None = None
    teacher_mask: Tensor | None = None


@dataclass(frozen=True)
class BatchCounts:
    """The numbers of sequences, of real tokens, and of targets (sum of weights) in a batch."""

    num_sequences: float
    num_tokens: float
    num_targets: float


class DistillationTerm(nn.Module):
    """A distance between two models, whose parameters are trained with the student.

    Attributes:
        student_taps, teacher_taps: names of the hidden values that it compares.
        compares_outputs: True if it compares outputs.
    """

    student_taps: Sequence[str] = ()
    teacher_taps: Sequence[str] = ()
    compares_outputs: ClassVar[bool] = False

    def count(self, batch_counts: BatchCounts) -> float:
        """Return the number by which the sum over a batch is divided."""
        raise TypeError(f"{type(self).__name__} does not implement count")

    def forward(self, inputs: DistillationInputs) -> Tensor:
        """Return the distance summed over a batch, 0-d float32."""
        raise TypeError(f"{type(self).__name__} does not implement forward")

    def init(self, seed: int) -> None:
        """Initialise its parameters."""


class DistillationTermConfig(Config):
    """The axis of distillation terms; ``weight`` is the factor in the total loss."""

    weight: NumberOrSchedule = ConstantSchedule(value=1.0)

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        """Return the term for two encoders; raise UserError if it cannot compare them."""
        raise TypeError(f"{type(self).__name__} is an axis, not a distillation term")


class DistillationTerms(nn.Module):
    """Distillation terms by name: the kind, with a number from the second term of a kind on.

    Attributes:
        student_taps, teacher_taps: names of the hidden values that they compare.
        compares_outputs: True if a term compares outputs.

    Raises UserError if a term cannot compare the two encoders.
    """

    def __init__(
        self,
        configs: Sequence[DistillationTermConfig],
        student: EncoderConfig,
        teacher: EncoderConfig,
    ) -> None:
        super().__init__()
        self._by_name: dict[str, tuple[DistillationTermConfig, DistillationTerm]] = {}
        for index, config in enumerate(configs):
            kind = config.kind_name()
            num_before = sum(other.kind_name() == kind for other in configs[:index])
            name = f"{kind} {num_before + 1}" if num_before else kind
            self._by_name[name] = config, config.build(student, teacher)
        terms = [term for _, term in self._by_name.values()]
        self.modules_list = nn.ModuleList(terms)
        self.student_taps = [tap for term in terms for tap in term.student_taps]
        self.teacher_taps = [tap for term in terms for tap in term.teacher_taps]
        self.compares_outputs = any(term.compares_outputs for term in terms)

    def init(self, seed: int) -> None:
        """Initialise the parameters of all terms."""
        for _, term in self._by_name.values():
            term.init(seed)

    def weights(self, fraction: float) -> dict[str, float]:
        """Return the weights of the terms in the total loss."""
        return {name: config.weight.at(fraction) for name, (config, _) in self._by_name.items()}

    def counts(self, batch_counts: BatchCounts) -> dict[str, float]:
        """Return the numbers by which the losses of a batch are divided."""
        return {name: term.count(batch_counts) for name, (_, term) in self._by_name.items()}

    def losses(self, inputs: DistillationInputs, batch_counts: BatchCounts) -> dict[str, Loss]:
        """Return the losses of a batch by name."""
        zero = inputs.student_outputs.new_zeros(())
        return {
            name: Loss(term(inputs), term.count(batch_counts), zero)
            for name, (_, term) in self._by_name.items()
        }
