"""Distillation of outputs: the teacher's distribution instead of only its best label.

Hinton et al. (2015).
"""

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
)
from bertwright.encoder.config import EncoderConfig


class OutputLossConfig(DistillationTermConfig):
    """A distillation loss on the outputs of a head.

    ``divergence`` is T^2 KL(softmax(t/T) || softmax(s/T)) over classes, over yes and no for each of
    several labels, over start and end positions of an answer, or over options. ``squared`` is the
    squared difference of the outputs (Tang et al. 2019). Regression always uses ``squared``, and
    similarity compares cosines. Both are summed over classes; published code divides by the number
    of classes (``mean``), so its weights differ.
    """

    kind: Literal["outputs"] = "outputs"
    distance: Literal["divergence", "squared"] = "divergence"
    temperature: float = Field(default=1.0, gt=0)
    mean: bool = False

    def build(self, student: EncoderConfig, teacher: EncoderConfig) -> DistillationTerm:
        return OutputLoss(self)


class OutputLoss(DistillationTerm):
    compares_outputs: ClassVar[bool] = True

    def __init__(self, config: OutputLossConfig) -> None:
        super().__init__()
        self.config = config

    def count(self, batch_counts: BatchCounts) -> float:
        return batch_counts.num_targets

    def forward(self, inputs: DistillationInputs) -> Tensor:
        student, teacher = inputs.student_logits, inputs.teacher_logits
        if self.config.distance == "squared" or student is None or teacher is None:
            loss = (inputs.student_outputs - inputs.teacher_outputs).square().sum()
            num_outputs = inputs.student_outputs.shape[-1]
        else:
            loss = soft_kl_divergence(student, teacher, self.config.temperature)
            num_outputs = student.shape[-1]
        return loss / num_outputs if self.config.mean else loss


def soft_kl_divergence(
    student_logits: Tensor, teacher_logits: Tensor, temperature: float
) -> Tensor:
    """Return T^2 KL(teacher || student) for logits (M, K), summed.

    The factor makes the size of the gradients independent of T.
    """
    student, teacher = (
        F.log_softmax(logits / temperature, -1) for logits in (student_logits, teacher_logits)
    )
    return temperature**2 * F.kl_div(student, teacher, reduction="sum", log_target=True)
