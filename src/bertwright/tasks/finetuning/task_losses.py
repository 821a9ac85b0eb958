"""The losses of a micro-batch: of the labels, of penalties, of a teacher, of the next tokens."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.model_output import Loss
from bertwright.tasks.finetuning.batching.batches import OUTPUT_PENALTY, TASK_LOSS, TaskBatch
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.finetuning.linear_gain import linear_gain_loss
from bertwright.tasks.finetuning.losses import NEXT_TOKENS, next_token_loss
from bertwright.tasks.finetuning.perturbation import ForwardPass
from bertwright.tasks.heads.text_vectors import TextVectorHead
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
        run, model, task_index = self.run, self.run.model, batch.task_index
        head = model.head_of(task_index)
        rng = DropoutRng.for_step(self.seed, progress.step, batch.first_sequence, run.source.device)
        document_ids = batch.token_info.document_ids
        assert document_ids is not None, "task batches mark real positions"
        positions = None
        if not run.config.linear_gain:
            positions = head.output_positions(batch.token_ids, document_ids, batch.positions)
        real, output_lengths = (
            slice(batch.num_sequences),
            batch.output_lengths[: batch.num_sequences],
        )

        def hidden_states(positions: Tensor | None) -> Tensor:
            return model.hidden_states(
                task_index, batch.token_ids, batch.token_info, positions, rng, batch.packing
            )

        def outputs_and_loss(outputs: Tensor) -> tuple[Tensor, Loss]:
            decoder = run.encoded_tasks[task_index].output_decoder
            loss, num_correct = decoder.loss(outputs, batch.item_output_lengths, batch.targets)
            return outputs, Loss(loss, float(len(batch.targets)), num_correct)

        def apply_head(states: Tensor) -> tuple[Tensor, Loss]:
            if batch.decoder_inputs is not None:
                info, inputs = batch.token_info, batch.decoder_inputs
                return states, model.text_loss(states, info, inputs, batch.targets, rng)
            if run.config.linear_gain:
                head_rng = model.head_dropout_rng(rng, batch.first_sequence)
                decoder = run.encoded_tasks[task_index].output_decoder
                outputs, loss = linear_gain_loss(
                    head, decoder, states[real], document_ids[real], batch.targets, head_rng
                )
                return outputs, replace(outputs_and_loss(outputs)[1], sum=loss)
            if isinstance(head, TextVectorHead):
                inputs = batch.token_ids, batch.token_info, batch.positions
                outputs = model.text_vectors(task_index, states, *inputs)[real]
                return outputs_and_loss(outputs)
            outputs = model.head_outputs(
                task_index,
                states,
                document_ids,
                output_lengths,
                rng,
                batch.first_output,
                batch.token_info.segment_ids,
            )
            return outputs_and_loss(outputs)

        def forward_pass() -> tuple[Tensor, Loss]:
            return apply_head(hidden_states(positions))

        if self.frozen_features is not None:
            indices = batch.sequence_indices[: batch.num_sequences]
            features, tokens = self.frozen_features.gather(task_index, indices)
            head_rng = model.head_dropout_rng(rng, batch.first_output)
            outputs = head.project(features, output_lengths, head_rng, tokens)
            return {TASK_LOSS: outputs_and_loss(outputs)[1]}
        if run.config.perturbation is not None:
            loss = run.config.perturbation.loss(
                model.encoder.embeddings,
                forward_pass,
                document_ids >= 0,
                batch.count,
                self.seed + progress.step,
            )
            return {TASK_LOSS: loss}
        if run.distillation_loss is not None:
            return self._distillation_losses(run.distillation_loss, batch, progress, forward_pass)
        if model.lm_head is None or not run.config.language_model:
            outputs, loss = forward_pass()
            return {TASK_LOSS: loss, **self._output_penalty(batch, outputs, progress)}
        states = hidden_states(None)
        width = model.recipe.encoder.width
        lm_loss = next_token_loss(
            model.lm_head,
            model.encoder.embeddings.table,
            states[real, :, -width:],
            batch.token_ids[real],
            document_ids[real],
        )
        if positions is not None:
            states = states.flatten(0, 1).index_select(0, positions)
        return {TASK_LOSS: apply_head(states)[1], NEXT_TOKENS: lm_loss}

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
