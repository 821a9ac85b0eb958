"""The losses of a micro-batch: of the labels, of penalties, of a teacher, of the next tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.model_output import Loss
from bertwright.tasks.finetuning.batching.batches import OUTPUT_PENALTY, TASK_LOSS, TaskBatch
from bertwright.tasks.finetuning.forward_pass import TaskForwardPass
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.finetuning.losses import NEXT_TOKENS
from bertwright.tasks.finetuning.perturbation import ForwardPass
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import DistillationLoss, StudentOutputs

if TYPE_CHECKING:
    from bertwright.tasks.finetuning.run import FineTuningRun

TaskDistillationLoss = DistillationLoss[TaskBatch, TaskBatch]

PENALTY = "penalty"
"""Name of the loss of penalties on parameters."""


@dataclass(frozen=True)
class TaskLosses:
    """The losses of a micro-batch."""

    run: "FineTuningRun"
    seed: int
    frozen_features: FrozenFeatures | None

    def __call__(self, batch: TaskBatch, progress: Progress) -> dict[str, Loss]:
        losses = self._step_losses(batch, progress)
        # Only in the first micro-batch of a step, so that it is counted once.
        if batch.first_sequence or not self.run.model.has_penalty:
            return losses
        penalty = self.run.model.penalty()
        return {**losses, PENALTY: Loss(penalty, 1.0, penalty.new_zeros(()))}

    def _step_losses(self, batch: TaskBatch, progress: Progress) -> dict[str, Loss]:
        run = self.run
        rng = DropoutRng.for_step(self.seed, progress.step, batch.first_sequence, run.source.device)
        forward_pass = TaskForwardPass(run, batch, rng)
        if self.frozen_features is not None:
            return {TASK_LOSS: forward_pass.on_frozen_features(self.frozen_features)[1]}
        if run.config.perturbation is not None:
            loss = run.config.perturbation.loss(
                run.model.encoder.embeddings,
                forward_pass,
                forward_pass.document_ids >= 0,
                batch.count,
                self.seed + progress.step,
            )
            return {TASK_LOSS: loss}
        if run.distillation_loss is not None:
            return self._distillation_losses(run.distillation_loss, batch, progress, forward_pass)
        if run.config.language_model:
            label_loss, next_tokens = forward_pass.with_next_tokens()
            return {TASK_LOSS: label_loss, NEXT_TOKENS: next_tokens}
        outputs, loss = forward_pass()
        return {TASK_LOSS: loss, **self._output_penalty(batch, outputs, progress)}

    def _output_penalty(
        self, batch: TaskBatch, outputs: Tensor, progress: Progress
    ) -> dict[str, Loss]:
        """Return the penalty on the outputs of a step, for output types that have one."""
        encoded_task = self.run.encoded_tasks[batch.task_index]
        if not encoded_task.task.output_type.is_penalised:
            return {}
        decoder, lengths = encoded_task.output_decoder, batch.item_output_lengths
        penalty = decoder.penalty(outputs, lengths, progress.fraction)
        return {OUTPUT_PENALTY: Loss(penalty, 1.0, penalty.new_zeros(()))}

    def _distillation_losses(
        self,
        distillation_loss: TaskDistillationLoss,
        batch: TaskBatch,
        progress: Progress,
        forward_pass: ForwardPass,
    ) -> dict[str, Loss]:
        """Return the loss on the labels and the distillation losses."""
        encoder = self.run.model.encoder
        with encoder.record(*distillation_loss.taps(progress), output_gradients=True) as values:
            outputs, label_loss = forward_pass()
        student_outputs = StudentOutputs(batch, values, progress, outputs)
        return {TASK_LOSS: label_loss, **distillation_loss.losses(student_outputs)}
