"""The forward pass of a micro-batch: the encoder, the head of the task, the loss on the labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.model_output import Loss
from bertwright.tasks.finetuning.batching.batches import TaskBatch
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.finetuning.linear_gain import linear_gain_loss
from bertwright.tasks.finetuning.losses import next_token_loss
from bertwright.tasks.heads.head import TaskHead
from bertwright.tasks.heads.text_vectors import TextVectorHead

if TYPE_CHECKING:
    from bertwright.tasks.finetuning.run import FineTuningRun


@dataclass(frozen=True)
class TaskForwardPass:
    """Computes the outputs (N, K) of a micro-batch and the loss on its labels."""

    run: "FineTuningRun"
    batch: TaskBatch
    rng: DropoutRng

    def __call__(self) -> tuple[Tensor, Loss]:
        return self._apply_head(self._hidden_states(self._output_positions))

    def on_frozen_features(self, frozen_features: FrozenFeatures) -> tuple[Tensor, Loss]:
        """Return the outputs and the loss of a head that reads features of a frozen encoder."""
        batch = self.batch
        features, tokens = frozen_features.gather(
            batch.task_index, batch.sequence_indices[: batch.num_sequences]
        )
        head_rng = self.run.model.head_dropout_rng(self.rng, batch.first_output)
        outputs = self._head.project(features, self._output_lengths, head_rng, tokens)
        return outputs, self._label_loss(outputs)

    def with_next_tokens(self) -> tuple[Loss, Loss]:
        """Return the loss on the labels and that of a causal language model on the same text."""
        batch, model = self.batch, self.run.model
        assert model.lm_head is not None, "checked when the run is built"
        states = self._hidden_states(None)
        next_tokens = next_token_loss(
            model.lm_head,
            model.encoder.embeddings.table,
            states[: batch.num_sequences, :, -model.recipe.encoder.width :],
            batch.token_ids[: batch.num_sequences],
            self.document_ids[: batch.num_sequences],
        )
        if (positions := self._output_positions) is not None:
            states = states.flatten(0, 1).index_select(0, positions)
        return self._apply_head(states)[1], next_tokens

    @property
    def document_ids(self) -> Tensor:
        """Return the document of every position (B, L), -1 for padding."""
        assert self.batch.token_info.document_ids is not None, "task batches mark real positions"
        return self.batch.token_info.document_ids

    @property
    def _head(self) -> TaskHead:
        return self.run.model.head_of(self.batch.task_index)

    @property
    def _output_lengths(self) -> Sequence[int]:
        return self.batch.output_lengths[: self.batch.num_sequences]

    @property
    def _output_positions(self) -> Tensor | None:
        """Return the flat positions (M,) whose hidden states the head reads; None for all."""
        if self.run.config.linear_gain:
            return None
        batch = self.batch
        return self._head.output_positions(batch.token_ids, self.document_ids, batch.positions)

    def _hidden_states(self, positions: Tensor | None) -> Tensor:
        batch = self.batch
        return self.run.model.hidden_states(
            batch.task_index, batch.token_ids, batch.token_info, positions, self.rng, batch.packing
        )

    def _apply_head(self, states: Tensor) -> tuple[Tensor, Loss]:
        batch, model, head = self.batch, self.run.model, self._head
        if batch.decoder_inputs is not None:
            inputs = batch.token_info, batch.decoder_inputs, batch.targets
            return states, model.text_loss(states, *inputs, self.rng)
        if self.run.config.linear_gain:
            outputs, loss_sum = linear_gain_loss(
                head,
                self.run.encoded_tasks[batch.task_index].output_decoder,
                states[: batch.num_sequences],
                self.document_ids[: batch.num_sequences],
                batch.targets,
                model.head_dropout_rng(self.rng, batch.first_sequence),
            )
            return outputs, replace(self._label_loss(outputs), sum=loss_sum)
        if isinstance(head, TextVectorHead):
            inputs = batch.token_ids, batch.token_info, batch.positions
            outputs = model.text_vectors(batch.task_index, states, *inputs)[: batch.num_sequences]
            return outputs, self._label_loss(outputs)
        outputs = model.head_outputs(
            batch.task_index,
            states,
            self.document_ids,
            self._output_lengths,
            self.rng,
            batch.first_output,
            batch.token_info.segment_ids,
        )
        return outputs, self._label_loss(outputs)

    def _label_loss(self, outputs: Tensor) -> Loss:
        batch = self.batch
        decoder = self.run.encoded_tasks[batch.task_index].output_decoder
        loss, num_correct = decoder.loss(outputs, batch.item_output_lengths, batch.targets)
        return Loss(loss, float(len(batch.targets)), num_correct)
