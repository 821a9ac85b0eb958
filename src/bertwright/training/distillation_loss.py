"""Distillation losses: training signals from a teacher, in pre-training and in fine-tuning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from torch import Tensor, nn

from bertwright.batches.batch import Batch
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.objectives.model_output import Loss
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress
from bertwright.training.step_batch import MicroBatch, StepBatch

DISTILLATION_PREFIX = "distillation_loss."
"""Prefix of the names of parameters trained with the student but not saved with it."""

StudentInput = TypeVar("StudentInput")
"""A micro-batch on the student's device."""


@dataclass(frozen=True)
class StudentOutputs(Generic[StudentInput]):
    """The outputs of the student for one micro-batch.

    Attributes:
        tap_values: encoder activations by tap name, as requested by ``taps``.
        head_outputs: (M, K) float32 of a task's head, without fillers; None in pre-training.
    """

    batch: StudentInput
    tap_values: Mapping[str, Tensor]
    progress: Progress
    head_outputs: Tensor | None = None


class DistillationLoss(nn.Module, Generic[MicroBatch, StudentInput]):
    """A loss against a teacher; its parameters are trained with the student but not saved.

    Attributes:
        fingerprint: identifies the teacher; a resumed run must use the same one.
        callbacks: run within a step of fine-tuning.
        can_select_epochs: whether held-out scores select the best epoch of fine-tuning. If False,
            because the student has not learned the task yet, the last epoch is kept.
    """

    fingerprint: str = ""
    callbacks: Sequence[Callback] = ()
    can_select_epochs: bool = True

    def init(self, seed: int) -> None:
        """Initialise the trainable parameters, after the student's; freeze the others."""

    def taps(self, progress: Progress) -> Sequence[str]:
        """Return the names of the student taps that the losses read."""
        return ()

    def objective_scale(self, progress: Progress) -> float:
        """Return the factor applied to the weights of the losses without a teacher."""
        return 1.0

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        """Return the weights of the distillation losses; others have weight 1."""
        return {}

    def level_learning_rates(self, progress: Progress) -> Sequence[float] | None:
        """Return learning rate factors of the student by level in pre-training; None if all are 1.

        Levels: everything before the blocks, each block, everything after the blocks.
        """
        return None

    def prepare_step(
        self, step: StepBatch[MicroBatch], progress: Progress
    ) -> StepBatch[MicroBatch]:
        """Return the step batch with this loss's counts and any extra sequences added."""
        return step

    def losses(self, student_outputs: StudentOutputs[StudentInput]) -> dict[str, Loss]:
        """Return the losses of a micro-batch by name."""
        return {}


def combined_loss_weights(
    weights: Mapping[str, float],
    distillation_loss: DistillationLoss[MicroBatch, StudentInput] | None,
    progress: Progress,
) -> Mapping[str, float]:
    """Return the weights of the losses without a teacher, scaled, and of distillation losses."""
    if distillation_loss is None:
        return weights
    scale = distillation_loss.objective_scale(progress)
    scaled = {name: scale * weight for name, weight in weights.items()}
    return scaled | distillation_loss.loss_weights(progress)


PretrainingDistillationLoss = DistillationLoss[Batch, DeviceBatch]


class PretrainingDistillation(Protocol):
    """A factory of a distillation loss, given the student."""

    def fit_student(self, recipe: Recipe) -> Recipe:
        """Return a student's recipe with the layers that the loss needs."""
        ...

    def build_loss(self, student: Model, data: Dataset) -> PretrainingDistillationLoss:
        """Build the loss for a student and its data.

        Errors: UserError if the teacher does not fit the student.
        """
        ...
