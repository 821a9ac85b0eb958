"""Interface of distillation losses: training signals from a teacher."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from bertwright.batches.batch import Batch
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.objectives.objective import Loss, Objective
from bertwright.training.clock import Progress
from bertwright.training.step_batch import StepBatch

DISTILLATION_PREFIX = "distillation_loss."
"""Prefix of the names of parameters trained with the student but not saved with it."""


class DistillationLoss(nn.Module):
    """A loss against a teacher; its parameters are trained with the student but not saved."""

    def init(self, seed: int) -> None:
        """Initialise the trainable parameters, after the student's; freeze the others."""

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        """Return the weights of losses in the total; others keep their weight."""
        return {}


@dataclass(frozen=True)
class PretrainingStudentOutputs:
    """The outputs of the student for one micro-batch.

    Attributes:
        objectives: active objectives by name.
        tap_values: encoder activations by tap name, as requested by ``taps``.
    """

    batch: DeviceBatch
    objectives: Mapping[str, Objective]
    tap_values: Mapping[str, Tensor]
    progress: Progress


class PretrainingDistillationLoss(DistillationLoss):
    """A distillation loss for pre-training.

    Attributes:
        fingerprint: identifies the teacher; a resumed run must use the same one.
    """

    fingerprint: str = ""

    def taps(self, progress: Progress) -> Sequence[str]:
        """Return the names of the student taps that the losses read."""
        return ()

    def objective_scale(self, progress: Progress) -> float:
        """Return the factor applied to the weights of the recipe's objectives."""
        return 1.0

    def level_learning_rates(self, progress: Progress) -> Sequence[float] | None:
        """Return learning rate factors of the student by level; None if all are 1.

        Levels: everything before the blocks, each block, everything after the blocks.
        """
        return None

    def prepare_step(self, step: StepBatch[Batch], progress: Progress) -> StepBatch[Batch]:
        """Return the step batch with the loss counts, and any extra sequences, of this loss."""
        return step

    def losses(self, student_outputs: PretrainingStudentOutputs) -> dict[str, Loss]:
        """Return the losses of a micro-batch by name."""
        return {}


class PretrainingDistillation(Protocol):
    """A factory of a distillation loss, given the student."""

    def build_loss(self, student: Model, data: Dataset) -> PretrainingDistillationLoss:
        """Build the loss for a student and its data.

        Errors: UserError if the teacher does not fit the student.
        """
        ...
