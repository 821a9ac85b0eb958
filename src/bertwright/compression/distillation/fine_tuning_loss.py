"""Distillation of a fine-tuned model into a smaller one, for the same task (Hinton et al. 2015)."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertwright.compression.distillation.losses import (
    BatchCounts,
    DistillationInputs,
    DistillationTermConfig,
    DistillationTerms,
)
from bertwright.compression.distillation.transfer.dataset import TransferDataset
from bertwright.core.errors import UserError
from bertwright.core.schedules import Schedule
from bertwright.objectives.objective import Loss
from bertwright.tasks.data.lazy_examples import LazyEncodedTask, encode_examples
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batches import TASK_LOSS, TaskBatch
from bertwright.tasks.finetuning.distillation import TaskDistillationLoss, TaskStudentOutputs
from bertwright.tasks.finetuning.encoded_task import EncodedTask
from bertwright.tasks.finetuning.used_vocabulary import UsedVocabulary
from bertwright.tasks.task_model import MultiTaskModel
from bertwright.training.clock import Progress


@dataclass(frozen=True)
class TeacherTaskDistillation:
    """A factory of distillation losses; ``objective_weight`` weighs the loss on the labels."""

    teacher: FineTunedModel
    losses: Sequence[DistillationTermConfig]
    objective_weight: Schedule

    def build_loss(
        self,
        student: MultiTaskModel,
        encoded_tasks: Sequence[EncodedTask],
        used_vocabulary: UsedVocabulary | None,
    ) -> TaskDistillationLoss:
        """Return the distillation loss of a student.

        Raises UserError if the teacher's task or labels differ, if the two truncate examples
        differently, or if hidden values of different tokens would be compared.
        """
        if len(encoded_tasks) > 1:
            raise UserError("a teacher knows a single task: distil one task at a time")
        (part,) = encoded_tasks
        terms = DistillationTerms(
            self.losses, student.recipe.encoder, self.teacher.task_model.recipe.encoder
        )
        outputs, taps = teacher_outputs(self.teacher, part), terms.teacher_taps
        values = (
            _TeacherValues.for_task(self.teacher, part, used_vocabulary, taps) if taps else None
        )
        return _TeacherTaskLoss(terms, self.objective_weight, part, outputs, values)


class _TeacherTaskLoss(TaskDistillationLoss):
    """The distillation losses of a frozen teacher.

    ``outputs_by_sequence`` holds its outputs for every sequence of the task; ``teacher_values``
    computes its hidden values.
    """

    def __init__(
        self,
        distillation_terms: DistillationTerms,
        objective_weight: Schedule,
        part: EncodedTask,
        outputs_by_sequence: Sequence[Tensor],
        teacher_values: "_TeacherValues | None",
    ) -> None:
        super().__init__()
        self.distillation_terms, self._objective_weight = distillation_terms, objective_weight
        self._part, self._outputs_by_sequence = part, outputs_by_sequence
        self._teacher_values = teacher_values
        self.taps = distillation_terms.student_taps
        self.can_select_epochs = distillation_terms.compares_outputs or objective_weight.at(1.0) > 0

    def init(self, seed: int) -> None:
        self.distillation_terms.init(seed)

    def counts(self, sequences: Sequence[TaskSequence], count: float) -> dict[str, float]:
        return self.distillation_terms.counts(_batch_counts(sequences, count))

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        objective = {TASK_LOSS: self._objective_weight.at(progress.fraction)}
        return objective | self.distillation_terms.weights(progress.fraction)

    def losses(self, student_outputs: TaskStudentOutputs) -> dict[str, Loss]:
        batch, outputs = student_outputs.batch, student_outputs.outputs
        indices = batch.sequence_indices[: batch.num_sequences]
        document_ids = batch.token_info.document_ids
        assert document_ids is not None, "task batches mark padding"
        is_real = document_ids >= 0
        is_real[batch.num_sequences :] = False
        teacher = torch.cat([self._outputs_by_sequence[index] for index in indices])
        teacher = teacher.to(outputs.device)
        decoder, lengths = self._part.output_decoder, batch.item_output_lengths
        inputs = DistillationInputs(
            decoder.comparable_outputs(outputs, lengths),
            decoder.comparable_outputs(teacher, lengths),
            decoder.logits(outputs, lengths),
            decoder.logits(teacher, lengths),
            student_outputs.tap_values,
            {} if self._teacher_values is None else self._teacher_values(batch),
            is_real,
            student_outputs.progress,
        )
        sequences = [self._part.sequences[index] for index in indices]
        counts = _batch_counts(sequences, float(len(batch.targets)))
        return self.distillation_terms.losses(inputs, counts)


def _batch_counts(sequences: Sequence[TaskSequence], num_targets: float) -> BatchCounts:
    num_tokens = sum(len(sequence.token_ids) for sequence in sequences)
    return BatchCounts(float(len(sequences)), float(num_tokens), num_targets)


class _TeacherValues:
    """The hidden values of a teacher for the sequences of a batch."""

    def __init__(
        self, teacher: FineTunedModel, used_vocabulary: UsedVocabulary | None, taps: Sequence[str]
    ) -> None:
        self._encoder, self._taps = teacher.task_model.encoder, taps
        self._used_vocabulary = used_vocabulary
        if teacher.precision == "bf16":
            self._encoder = deepcopy(self._encoder).to(torch.bfloat16)

    @staticmethod
    def for_task(
        teacher: FineTunedModel,
        part: EncodedTask,
        used_vocabulary: UsedVocabulary | None,
        taps: Sequence[str],
    ) -> "_TeacherValues":
        """Check that the teacher tokenizes the examples as the student does."""
        encoded = encode_examples(teacher.output_decoder, teacher.example_encoder, part.train)
        if any(
            (a.token_ids, a.segment_ids) != (b.token_ids, b.segment_ids)
            for a, b in zip(encoded, part.sequences, strict=True)
        ):
            raise UserError(
                "the teacher tokenizes texts differently than its student, so hidden values cannot "
                "be compared: choose a method that compares outputs only"
            )
        return _TeacherValues(teacher, used_vocabulary, taps)

    @torch.no_grad()
    def __call__(self, batch: TaskBatch) -> Mapping[str, Tensor]:
        token_ids = batch.token_ids
        if self._used_vocabulary is not None:
            token_ids = self._used_vocabulary.used_token_ids[token_ids]
        with self._encoder.record(*self._taps) as values:
            self._encoder(token_ids, batch.token_info)
        return values


def teacher_outputs(teacher: FineTunedModel, part: EncodedTask) -> Sequence[Tensor]:
    """Return a teacher's outputs for each sequence of a task, (k, K) float32, on training scale.

    Outputs stored in a transfer dataset are read, not computed again. Raises UserError if the
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
