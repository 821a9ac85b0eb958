"""Distillation in pre-training: teacher and student read the same text (Sanh et al. 2019; Jiao et
al. 2020; Sun et al. 2020)."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bertwright.batches.batch import Batch
from bertwright.compression.distillation.losses import (
    BatchCounts,
    DistillationInputs,
    DistillationTerms,
)
from bertwright.compression.distillation.requirements import (
    masked_objective_name,
    model_fingerprint,
    non_block_parameters,
    require_block_schedule,
    require_same_shapes,
)
from bertwright.compression.distillation.stages import DistillationStage, stage_at
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.objectives.objective import Loss, combined_visibility
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import (
    PretrainingDistillationLoss,
    PretrainingStudentOutputs,
)
from bertwright.training.step_batch import StepBatch

OUTPUT_TAP = "output"
"""The tap of the hidden states that the LM head reads."""


@dataclass(frozen=True)
class TeacherPretrainingDistillation:
    """A factory of distillation losses of a teacher, stage by stage.

    The teacher reads the student's sequences with the same tokens masked. With
    ``copy_non_block_weights`` the student starts with the teacher's weights outside the blocks.
    """

    teacher: TextModel
    stages: Sequence[DistillationStage]
    copy_non_block_weights: bool = False

    @property
    def fingerprint(self) -> str:
        """An identifier of the teacher and the stages."""
        stages = [stage.model_dump_json() for stage in self.stages]
        flags = ["around"] if self.copy_non_block_weights else []
        return " ".join([model_fingerprint(self.teacher.model), *stages, *flags])

    def build_loss(self, student: Model, data: Dataset) -> PretrainingDistillationLoss:
        """Return the distillation loss of a student.

        Raises UserError if the tokenizers differ, if the two do not share a masked-token objective,
        or if the block schedule or the copied weights do not fit.
        """
        if self.teacher.tokenizer.hash != data.tokenizer.hash:
            raise UserError(
                f"{data.path} was prepared with another tokenizer than the teacher's: prepare the "
                f"text with the teacher's tokenizer"
            )
        masked = masked_objective_name(student, self.teacher.model)
        encoders = student.recipe.encoder, self.teacher.model.recipe.encoder
        stage_terms = [DistillationTerms(stage.losses, *encoders) for stage in self.stages]
        for stage, terms in zip(self.stages, stage_terms, strict=True):
            if stage.block_schedule is not None:
                require_block_schedule(student, terms)
        if self.copy_non_block_weights:
            require_same_shapes(student, self.teacher.model)
        return _TeacherPretrainingLoss(self, student, masked, stage_terms)


class _TeacherPretrainingLoss(PretrainingDistillationLoss):
    """The distillation losses of a frozen teacher; outputs are compared where tokens are masked."""

    def __init__(
        self,
        distillation: TeacherPretrainingDistillation,
        student: Model,
        objective_name: str,
        stage_terms: Sequence[DistillationTerms],
    ) -> None:
        super().__init__()
        self.fingerprint, self._objective_name = distillation.fingerprint, objective_name
        self.term_modules, self._stage_terms = nn.ModuleList(stage_terms), list(stage_terms)
        self._stages = distillation.stages
        self._copies_weights = distillation.copy_non_block_weights
        original = distillation.teacher.model
        teacher = deepcopy(original).requires_grad_(False).eval()
        if (student.recipe.precision or default_precision(distillation.teacher.device)) == "bf16":
            teacher = teacher.to(torch.bfloat16)
        # In a tuple, so that their parameters are not registered as parameters of this module.
        self._models = student, teacher, original

    @torch.no_grad()
    def init(self, seed: int) -> None:
        for terms in self._stage_terms:
            terms.init(seed)
        if self._copies_weights:
            student, _, teacher = self._models
            teacher_parameters = dict(teacher.named_parameters())
            for name, parameter in non_block_parameters(student).items():
                if name in teacher_parameters:
                    parameter.copy_(teacher_parameters[name])

    def taps(self, progress: Progress) -> Sequence[str]:
        index, _ = self._stage_at(progress)
        return _output_taps(self._stage_terms[index]) + self._stage_terms[index].student_taps

    def objective_scale(self, progress: Progress) -> float:
        index, within = self._stage_at(progress)
        return self._stages[index].objective_weight.at(within.fraction)

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        index, within = self._stage_at(progress)
        return self._stage_terms[index].weights(within.fraction)

    def level_learning_rates(self, progress: Progress) -> Sequence[float] | None:
        index, within = self._stage_at(progress)
        schedule = self._stages[index].block_schedule
        num_blocks = len(self._models[0].encoder.blocks)
        return schedule and schedule.learning_rate_scales(
            num_blocks, within.fraction, within.midpoint
        )

    def prepare_step(self, step: StepBatch[Batch], progress: Progress) -> StepBatch[Batch]:
        num_sequences = sum(len(batch.token_ids) for batch in step.micro_batches)
        index, _ = self._stage_at(progress)
        counts = self._batch_counts(
            index, num_sequences, step.num_tokens, step.loss_counts[self._objective_name]
        )
        return replace(
            step, loss_counts={**step.loss_counts, **self._stage_terms[index].counts(counts)}
        )

    def losses(self, student_outputs: PretrainingStudentOutputs) -> dict[str, Loss]:
        index, within = self._stage_at(student_outputs.progress)
        terms, (student, teacher, _) = self._stage_terms[index], self._models
        batch, student_values = student_outputs.batch, student_outputs.tap_values
        targets = batch.targets[self._objective_name]
        rule = teacher.encoder.visibility & combined_visibility(
            list(student_outputs.objectives.values())
        )
        taps = _output_taps(terms) + terms.teacher_taps
        with torch.no_grad(), teacher.record(*taps) as teacher_values:
            teacher.encoder(batch.token_ids, batch.token_info, rule)
        document_ids = batch.token_info.document_ids
        is_real = (
            torch.ones_like(batch.token_ids, dtype=torch.bool)
            if document_ids is None
            else document_ids >= 0
        )
        student_logits = teacher_logits = torch.zeros((0, 1), device=batch.token_ids.device)
        if terms.compares_outputs:
            everywhere = self._stages[index].positions == "all"
            positions = is_real.flatten().nonzero().flatten() if everywhere else targets.positions
            student_logits = _logits_at(student, student_values[OUTPUT_TAP], positions)
            # A published table may have more rows than the vocabulary has tokens.
            teacher_logits = _logits_at(teacher, teacher_values[OUTPUT_TAP], positions)
            teacher_logits = teacher_logits[:, : student.vocab_size]
            if targets.weights is not None and not everywhere:
                # Positions of weight 0 add no loss: both outputs are the same there.
                student_logits = torch.where(
                    (targets.weights > 0)[:, None], student_logits, teacher_logits
                )
        inputs = DistillationInputs(
            student_logits,
            teacher_logits,
            student_logits,
            teacher_logits,
            student_values,
            teacher_values,
            is_real,
            within.fraction,
        )
        counts = self._batch_counts(
            index, len(batch.token_ids), batch.num_tokens, targets.total_weight
        )
        return terms.losses(inputs, counts)

    def _batch_counts(
        self, stage_index: int, num_sequences: int, num_tokens: int, num_masked: float
    ) -> BatchCounts:
        """Return the counts that the losses of a stage are divided by."""
        is_masked = self._stages[stage_index].positions == "masked"
        num_outputs = num_masked if is_masked else num_tokens
        return BatchCounts(float(num_sequences), float(num_tokens), float(num_outputs))

    def _stage_at(self, progress: Progress) -> tuple[int, Progress]:
        return stage_at(self._stages, progress)


def _output_taps(distillation_terms: DistillationTerms) -> list[str]:
    """Return the tap that outputs are computed from, if outputs are compared."""
    return [OUTPUT_TAP] if distillation_terms.compares_outputs else []


def _logits_at(model: Model, hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Return float32 logits (M, V) at flat positions (M,) of hidden states (B, L, D)."""
    return model.full_logits(hidden_states.flatten(0, 1).index_select(0, positions)).float()
