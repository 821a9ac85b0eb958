"""Distillation of a fine-tuned model into a smaller one for the same task (Hinton et al. 2015)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertwright.compression.distillation.frozen_teacher import FrozenTeacherLoss
from bertwright.compression.distillation.losses import (
    BatchCounts,
    DistillationInputs,
    DistillationTermConfig,
    DistillationTerms,
)
from bertwright.compression.distillation.requirements import (
    require_same_vector_width,
    require_start_token_first,
)
from bertwright.compression.distillation.stages import DistillationStage
from bertwright.compression.distillation.transfer.dataset import TransferDataset
from bertwright.core.errors import UserError
from bertwright.core.schedules import Schedule
from bertwright.tasks.data.lazy_examples import LazyEncodedTask, encode_examples
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.batches import TASK_LOSS, TaskBatch
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.batching.used_vocabulary import UsedVocabulary
from bertwright.tasks.multi_task_model import MultiTaskModel
from bertwright.training.distillation_loss import StudentOutputs
from bertwright.training.step_batch import StepBatch


@dataclass(frozen=True)
class TeacherTaskDistillation:
    """A factory of distillation losses; ``objective_weight`` weights the loss on the labels."""

    teacher: FineTunedModel
    losses: Sequence[DistillationTermConfig]
    objective_weight: Schedule

    def build_loss(
        self,
        student: MultiTaskModel,
        encoded_task: EncodedTask,
        used_vocabulary: UsedVocabulary | None,
    ) -> "_TeacherTaskLoss":
        """Return the distillation loss of a student.

        Raises UserError if the teacher has another task or labels, if the two truncate examples
        differently, or if hidden values of different tokens would be compared.
        """
        return _TeacherTaskLoss(self, student, encoded_task, used_vocabulary)


class _TeacherTaskLoss(FrozenTeacherLoss[TaskBatch, TaskBatch]):
    """The distillation losses of a fine-tuned teacher, which form a single stage."""

    def __init__(
        self,
        distillation: TeacherTaskDistillation,
        student: MultiTaskModel,
        encoded_task: EncodedTask,
        used_vocabulary: UsedVocabulary | None,
    ) -> None:
        teacher, weight = distillation.teacher, distillation.objective_weight
        stage = DistillationStage(losses=tuple(distillation.losses), objective_weight=weight)
        encoders = student.recipe.encoder, teacher.model.recipe.encoder
        require_same_vector_width([stage], *(encoder.hidden_widths[-1] for encoder in encoders))
        require_start_token_first([stage], student.recipe, teacher.model.recipe)
        super().__init__([stage], student.recipe.encoder, teacher, teacher.precision)
        self._encoded_task, self._used_vocabulary = encoded_task, used_vocabulary
        self._outputs_by_sequence = teacher_outputs(teacher, encoded_task)
        (terms,) = self.terms
        if terms.teacher_taps:
            _require_same_tokens(teacher, encoded_task)
        self.can_select_epochs = terms.compares_outputs or weight.at(1.0) > 0

    def step_counts(self, step: StepBatch[TaskBatch], stage: DistillationStage) -> BatchCounts:
        sizes = step.num_sequences, step.num_tokens, step.loss_counts[TASK_LOSS]
        return BatchCounts(*map(float, sizes))

    def compare(
        self,
        student_outputs: StudentOutputs[TaskBatch],
        stage: DistillationStage,
        terms: DistillationTerms,
        fraction: float,
    ) -> tuple[DistillationInputs, BatchCounts]:
        batch, outputs = student_outputs.batch, student_outputs.head_outputs
        indices = batch.sequence_indices[: batch.num_sequences]
        document_ids, token_ids = batch.token_info.document_ids, batch.token_ids
        assert document_ids is not None, "task batches mark padding"
        assert outputs is not None, "fine-tuning has a head"
        is_real = document_ids >= 0
        is_real[batch.num_sequences :] = False
        teacher = torch.cat([self._outputs_by_sequence[index] for index in indices])
        teacher = teacher.to(outputs.device)
        decoder, lengths = self._encoded_task.output_decoder, batch.item_output_lengths
        if self._used_vocabulary is not None:
            token_ids = self._used_vocabulary.used_token_ids[token_ids]
        inputs = DistillationInputs(
            decoder.comparable_outputs(outputs, lengths),
            decoder.comparable_outputs(teacher, lengths),
            decoder.logits(outputs, lengths),
            decoder.logits(teacher, lengths),
            student_outputs.tap_values,
            self.teacher_values(terms, token_ids, batch.token_info),
            is_real,
            fraction,
        )
        num_tokens = sum(len(self._encoded_task.sequences[index].token_ids) for index in indices)
        sizes = len(indices), num_tokens, len(batch.targets)
        return inputs, BatchCounts(*map(float, sizes))


def _require_same_tokens(teacher: FineTunedModel, encoded_task: EncodedTask) -> None:
    """Raise UserError if teacher and student tokenize the examples differently."""
    encoded = encode_examples(teacher.output_decoder, teacher.example_encoder, encoded_task.train)
    if any(
        (a.token_ids, a.segment_ids) != (b.token_ids, b.segment_ids)
        for a, b in zip(encoded, encoded_task.sequences, strict=True)
    ):
        raise UserError(
            "the teacher tokenizes texts differently than its student, so hidden values cannot "
            "be compared: choose a method that compares outputs only"
        )


def teacher_outputs(teacher: FineTunedModel, part: EncodedTask) -> Sequence[Tensor]:
    """Return a teacher's outputs (k, K) float32 for each sequence of a task, on training scale.

    Outputs stored in a transfer dataset are read instead of computed again. Raises UserError if the
    labels differ or if the two truncate examples differently.
    """
    task, teacher_task = part.task, teacher.task
    if (type(task.output_type), tuple(task.labels)) != (
        type(teacher_task.output_type),
        tuple(teacher_task.labels),
    ):
        raise UserError(
            f"the teacher was fine-tuned for {teacher_task.name} "
            f"({', '.join(teacher_task.labels) or 'no labels'}), its student learns {task.name} "
            f"({', '.join(task.labels) or 'no labels'}): both need the same labels"
        )
    different_lengths = UserError(
        f"the teacher splits long examples differently from its student: set max_length to "
        f"{teacher.example_encoder.max_length}, the teacher's"
    )
    if isinstance(part, LazyEncodedTask):
        assert isinstance(part.train, TransferDataset), "lazy examples come from a transfer set"
        assert part.train.teacher is teacher
        if (part.train.num_outputs() != np.array(part.sequences.output_lengths)).any():
            raise different_lengths
        return part.train.outputs_of(part)
    sequences = teacher.output_decoder.encode(teacher.example_encoder, part.train)
    teacher_lengths, student_lengths = (
        [(s.example_index, part.output_decoder.output_length(s)) for s in encoded]
        for encoded in (sequences, part.sequences)
    )
    if teacher_lengths != student_lengths:
        raise different_lengths
    outputs = (torch.from_numpy(output).float() for output in teacher.head_outputs(sequences))
    return [part.output_decoder.to_training_scale(output) for output in outputs]
