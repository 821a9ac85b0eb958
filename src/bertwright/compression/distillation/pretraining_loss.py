"""Distillation in pre-training: teacher and student read the same text.

Sanh et al. (2019); Jiao et al. (2020); Sun et al. (2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertwright.batches.batch import Batch
from bertwright.compression.distillation.frozen_teacher import FrozenTeacherLoss
from bertwright.compression.distillation.losses import (
    BatchCounts,
    DistillationInputs,
    DistillationTerms,
    OutputLossConfig,
)
from bertwright.compression.distillation.requirements import (
    learns_vectors,
    masked_objective_name,
    non_block_parameters,
    require_block_schedule,
    require_only_vectors,
    require_same_sequences,
    require_same_shapes,
    require_same_vector_width,
    require_start_token_first,
)
from bertwright.compression.distillation.retokenized_texts import TextRetokenizer
from bertwright.compression.distillation.stages import DistillationStage
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.models.text_model import TextModel
from bertwright.modules.vector_projection import VectorProjectionConfig
from bertwright.objectives.objective import combined_visibility
from bertwright.recipes import Recipe
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.tasks.provenance import model_checksum
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import PretrainingDistillationLoss, StudentOutputs
from bertwright.training.step_batch import StepBatch


@dataclass(frozen=True)
class TeacherPretrainingDistillation:
    """A factory of distillation losses for a teacher, stage by stage.

    The teacher reads the student's sequences with the same tokens masked; without objectives of the
    student, none are. With ``copy_non_block_weights``, the student starts with the teacher's
    weights outside of the blocks.
    """

    teacher: TextModel
    stages: Sequence[DistillationStage]
    copy_non_block_weights: bool = False

    @property
    def fingerprint(self) -> str:
        """Identifier of the teacher and the stages."""
        stages = [stage.model_dump_json() for stage in self.stages]
        flags = ["around"] if self.copy_non_block_weights else []
        return " ".join([model_checksum(self.teacher), *stages, *flags])

    def fit_student(self, recipe: Recipe) -> Recipe:
        """Return the recipe of a student whose vectors have the teacher's width, if they learn it.

        A narrower or wider encoder is given a projection, unless the recipe has one.
        """
        width = self.teacher.model.recipe.vector_width
        has_projection = recipe.vectors.projection is not None
        if has_projection or recipe.vector_width == width or not learns_vectors(self.stages):
            return recipe
        projection = VectorProjectionConfig(width=width)
        vectors = recipe.vectors.model_copy(update={"projection": projection})
        return recipe.model_copy(update={"vectors": vectors})

    def build_loss(self, student: Model, data: Dataset) -> PretrainingDistillationLoss:
        """Return the distillation loss of a student.

        Raises UserError if the tokenizers differ, unless only text vectors are compared; if
        teacher and student do not share a masked-token objective, unless the student has no
        objective and no outputs are compared; or if the block schedule or the copied weights do not
        fit.
        """
        retokenizer = None
        if self.teacher.tokenizer.hash != data.tokenizer.hash:
            require_only_vectors(student, self.stages, self.teacher, data)
            retokenizer = TextRetokenizer(data.tokenizer, self.teacher)
        require_same_sequences(student, self.teacher.model)
        widths = student.recipe.vector_width, self.teacher.model.recipe.vector_width
        require_same_vector_width(self.stages, *widths)
        require_start_token_first(self.stages, student.recipe, self.teacher.model.recipe)
        losses = (loss for stage in self.stages for loss in stage.losses)
        masked = None
        if student.recipe.objectives or any(isinstance(o, OutputLossConfig) for o in losses):
            masked = masked_objective_name(student, self.teacher.model)
        loss = _TeacherPretrainingLoss(self, student, masked, retokenizer)
        for stage, terms in zip(self.stages, loss.terms, strict=True):
            if stage.block_schedule is not None:
                require_block_schedule(student, terms)
        if self.copy_non_block_weights:
            require_same_shapes(student, self.teacher.model)
        return loss


class _TeacherPretrainingLoss(FrozenTeacherLoss[Batch, DeviceBatch]):
    """The distillation losses of a teacher; outputs are compared at masked tokens."""

    output_taps = ("output",)

    def __init__(
        self,
        distillation: TeacherPretrainingDistillation,
        student: Model,
        objective_name: str | None,
        retokenizer: TextRetokenizer | None = None,
    ) -> None:
        teacher, recipe = distillation.teacher, student.recipe
        precision = recipe.precision or default_precision(teacher.device)
        super().__init__(distillation.stages, recipe.encoder, teacher, precision)
        self.fingerprint, self._objective_name = distillation.fingerprint, objective_name
        self._retokenizer = retokenizer
        self._visibilities = [
            teacher.model.encoder.visibility
            & combined_visibility(list(recipe.objectives_of(phase).values()))
            for phase in range(len(recipe.phases))
        ]
        # In a tuple, so that its parameters are not registered with this module.
        self._student = (student,)
        self._copied_weights = (
            dict(teacher.model.named_parameters()) if distillation.copy_non_block_weights else {}
        )

    @torch.no_grad()
    def init(self, seed: int) -> None:
        super().init(seed)
        for name, parameter in non_block_parameters(self._student[0]).items():
            if name in self._copied_weights:
                parameter.copy_(self._copied_weights[name])

    def level_learning_rates(self, progress: Progress) -> Sequence[float] | None:
        stage, _, within = self.stage_at(progress)
        num_blocks = len(self._student[0].encoder.blocks)
        return stage.block_schedule and stage.block_schedule.learning_rate_scales(
            num_blocks, within.fraction, within.midpoint
        )

    def step_counts(self, step: StepBatch[Batch], stage: DistillationStage) -> BatchCounts:
        num_sequences = sum(len(batch.token_ids) for batch in step.micro_batches)
        name = self._objective_name
        num_masked = 0.0 if name is None else step.loss_counts[name]
        return _batch_counts(stage, num_sequences, step.num_tokens, num_masked)

    def prepare_step(self, step: StepBatch[Batch], progress: Progress) -> StepBatch[Batch]:
        prepared = super().prepare_step(step, progress)
        if self._retokenizer is None:
            return prepared
        batches = [
            replace(batch, teacher_batch=self._retokenizer(batch))
            for batch in prepared.micro_batches
        ]
        return replace(prepared, micro_batches=batches)

    def compare(
        self,
        student_outputs: StudentOutputs[DeviceBatch],
        stage: DistillationStage,
        terms: DistillationTerms,
        fraction: float,
    ) -> tuple[DistillationInputs, BatchCounts]:
        batch, values = student_outputs.batch, student_outputs.tap_values
        targets = None if self._objective_name is None else batch.targets[self._objective_name]
        visibility = self._visibilities[student_outputs.progress.phase]
        read = batch if batch.teacher_batch is None else batch.teacher_batch
        teacher_values = self.teacher_values(terms, read.token_ids, read.token_info, visibility)
        is_real = _attention_mask(batch)
        student_logits = teacher_logits = torch.zeros((0, 1), device=batch.token_ids.device)
        if terms.compares_outputs:
            assert targets is not None, "outputs are compared at masked tokens"
            everywhere = stage.positions == "all"
            positions = is_real.flatten().nonzero().flatten() if everywhere else targets.positions
            (student,), (tap,) = self._student, self.output_taps
            student_logits = _logits_at(student, values[tap], positions)
            with torch.no_grad():
                teacher_logits = _logits_at(self.teacher, teacher_values[tap], positions)
            # A published table may have more rows than the vocabulary has tokens.
            teacher_logits = teacher_logits[:, : student.vocab_size]
            if targets.weights is not None and not everywhere:
                # Positions of weight 0 add no loss, because both outputs are the same there.
                student_logits = torch.where(
                    (targets.weights > 0)[:, None], student_logits, teacher_logits
                )
        inputs = DistillationInputs(
            student_logits,
            teacher_logits,
            student_logits,
            teacher_logits,
            values,
            teacher_values,
            is_real,
            fraction,
            self._student[0].vector_projection,
            self.teacher.vector_projection,
            None if read is batch else _attention_mask(read),
        )
        num_masked = 0.0 if targets is None else targets.total_weight
        counts = len(batch.token_ids), batch.num_tokens, num_masked
        return inputs, _batch_counts(stage, *counts)


def _attention_mask(batch: DeviceBatch) -> Tensor:
    """Return the attention mask (B, L) bool of a batch."""
    document_ids = batch.token_info.document_ids
    if document_ids is None:
        return torch.ones_like(batch.token_ids, dtype=torch.bool)
    return document_ids >= 0


def _batch_counts(
    stage: DistillationStage, num_sequences: int, num_tokens: int, num_masked: float
) -> BatchCounts:
    num_outputs = num_masked if stage.positions == "masked" else num_tokens
    return BatchCounts(float(num_sequences), float(num_tokens), float(num_outputs))


def _logits_at(model: Model, hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Return float32 logits (M, V) at flat positions (M,) of hidden states (B, L, D)."""
    return model.full_logits(hidden_states.flatten(0, 1).index_select(0, positions)).float()
