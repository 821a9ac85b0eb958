"""Distillation losses of fine-tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bertwright.objectives.objective import Loss
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.finetuning.batches import TaskBatch
from bertwright.tasks.finetuning.encoded_task import EncodedTask
from bertwright.tasks.finetuning.used_vocabulary import UsedVocabulary
from bertwright.tasks.task_model import MultiTaskModel
from bertwright.training.callbacks.callback import Callback
from bertwright.training.distillation_loss import DistillationLoss


@dataclass(frozen=True)
class TaskStudentOutputs:
    """The outputs of the student for a micro-batch.

    Attributes:
        outputs: (M, K) float32 of its head, without fillers.
        tap_values: of its encoder, by tap name.
        progress: of the training, from 0 to 1.
    """

    batch: TaskBatch
    outputs: Tensor
    tap_values: Mapping[str, Tensor]
    progress: float


class TaskDistillationLoss(DistillationLoss):
    """The distillation losses of a teacher in fine-tuning.

    Attributes:
        taps: names of the taps of the student's encoder to record.
        callbacks: run within a step.
        can_select_epochs: whether held-out scores select the best epoch; else, where the student
            has not learned the task yet, the last epoch is kept.
    """

    taps: Sequence[str] = ()
    callbacks: Sequence[Callback] = ()
    can_select_epochs: bool = True

    def counts(self, sequences: Sequence[TaskSequence], count: float) -> dict[str, float]:
        """Return the divisors of the losses of a step by name; ``count`` counts the labels."""
        return {}

    def losses(self, student_outputs: TaskStudentOutputs) -> dict[str, Loss]:
        """Return the losses of a micro-batch by name."""
        return {}


class TaskDistillation(Protocol):
    """A factory of a distillation loss, given the student."""

    def build_loss(
        self,
        student: MultiTaskModel,
        encoded_tasks: Sequence[EncodedTask],
        used_vocabulary: UsedVocabulary | None,
    ) -> TaskDistillationLoss:
        """Build the losses for a student of these tasks; UserError where the teacher does not fit.

        ``used_vocabulary`` is the reduced vocabulary of the student's token ids, if any.
        """
        ...
