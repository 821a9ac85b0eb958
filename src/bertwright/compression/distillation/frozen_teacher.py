"""The base class of distillation losses whose teacher is not trained."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from bertwright.compression.distillation.losses import (
    BatchCounts,
    DistillationInputs,
    DistillationTerms,
)
from bertwright.compression.distillation.stages import DistillationStage, stage_at
from bertwright.encoder.config import EncoderConfig
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.attention.mask import Visibility
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.model_output import Loss
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import DistillationLoss, StudentInput, StudentOutputs
from bertwright.training.step_batch import MicroBatch, StepBatch


class FrozenTeacherLoss(DistillationLoss[MicroBatch, StudentInput]):
    """The distillation losses of a frozen teacher, stage by stage.

    Attributes:
        output_taps: the taps that outputs are computed from, if a stage compares outputs.

    Raises UserError if a term of a stage cannot compare the two encoders.
    """

    output_taps: Sequence[str] = ()

    def __init__(
        self,
        stages: Sequence[DistillationStage],
        student: EncoderConfig,
        teacher: TextModel,
        precision: str,
    ) -> None:
        super().__init__()
        self._text_model, self._precision, self._stages = teacher, precision, stages
        encoders = student, teacher.model.recipe.encoder
        self.terms = [DistillationTerms(stage.losses, *encoders) for stage in stages]
        self.term_modules = nn.ModuleList(self.terms)

    @cached_property
    def teacher(self) -> Model:
        """The teacher in its precision; not registered as a submodule, so it is not trained."""
        model = self._text_model.model
        return deepcopy(model).to(torch.bfloat16) if self._precision == "bf16" else model

    @abstractmethod
    def step_counts(self, step: StepBatch[MicroBatch], stage: DistillationStage) -> BatchCounts:
        """Return the counts by which the losses of a step are divided."""

    @abstractmethod
    def compare(
        self,
        student_outputs: StudentOutputs[StudentInput],
        stage: DistillationStage,
        terms: DistillationTerms,
        fraction: float,
    ) -> tuple[DistillationInputs, BatchCounts]:
        """Return the inputs of the terms for a micro-batch, and its counts."""

    @torch.no_grad()
    def teacher_values(
        self,
        terms: DistillationTerms,
        token_ids: Tensor,
        token_info: TokenInfo,
        visibility: Visibility | None = None,
    ) -> Mapping[str, Tensor]:
        """Return the teacher's values that the terms read, by tap name."""
        taps = [*self._output_taps(terms), *terms.teacher_taps]
        if not taps:
            return {}
        with self.teacher.record(*taps) as values:
            self.teacher.encoder(token_ids, token_info, visibility)
        return values

    def init(self, seed: int) -> None:
        for terms in self.terms:
            terms.init(seed)

    def taps(self, progress: Progress) -> Sequence[str]:
        _, terms, _ = self.stage_at(progress)
        return [*self._output_taps(terms), *terms.student_taps]

    def objective_scale(self, progress: Progress) -> float:
        stage, _, within = self.stage_at(progress)
        return stage.objective_weight.at(within.fraction)

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        _, terms, within = self.stage_at(progress)
        return terms.weights(within.fraction)

    def prepare_step(
        self, step: StepBatch[MicroBatch], progress: Progress
    ) -> StepBatch[MicroBatch]:
        stage, terms, _ = self.stage_at(progress)
        counts = terms.counts(self.step_counts(step, stage))
        return replace(step, loss_counts={**step.loss_counts, **counts})

    def losses(self, student_outputs: StudentOutputs[StudentInput]) -> dict[str, Loss]:
        stage, terms, within = self.stage_at(student_outputs.progress)
        return terms.losses(*self.compare(student_outputs, stage, terms, within.fraction))

    def stage_at(self, progress: Progress) -> tuple[DistillationStage, DistillationTerms, Progress]:
        """Return the current stage, its terms, and the progress within it."""
        index, within = stage_at(self._stages, progress)
        return self._stages[index], self.terms[index], within

    def _output_taps(self, terms: DistillationTerms) -> Sequence[str]:
        return self.output_taps if terms.compares_outputs else ()
