"""Joint training of a teacher and a student with a smaller vocabulary (Zhao et al. 2019, 2021).

The teacher reads the student's sequences with some words in its own tokens and others in the
student's tokens, and predicts masked tokens. This aligns the embeddings of both vocabularies.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.compression.distillation.dual_vocabulary_model import DualVocabularyModel
from bertwright.compression.distillation.requirements import (
    masked_objective_name,
    require_same_sequences,
)
from bertwright.compression.distillation.shared_projections import (
    NamedVariables,
    SharedProjections,
    named_variables,
)
from bertwright.compression.distillation.vocabulary_mixing import VocabularyMixer
from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.retokenization import WordRetokenizer
from bertwright.models.model import DeviceBatch, Model
from bertwright.models.text_model import TextModel
from bertwright.objectives.model_output import Loss
from bertwright.objectives.objective import MaskingContext
from bertwright.recipes import Recipe
from bertwright.tasks.provenance import model_checksum
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import (
    DistillationLoss,
    PretrainingDistillationLoss,
    StudentOutputs,
)
from bertwright.training.step_batch import StepBatch

TEACHER_LOSS, PROJECTION_LOSS = "mixed-words", "variables"


class JointTraining(Settings):
    """Settings for training a teacher and its student jointly.

    Attributes:
        mixed_word_fraction: fraction of words that the teacher reads in the student's tokens.
        embeddings: the teacher's vectors of these tokens: a separate table, or a linear projection
            of the student's table, which is trained through it.
        objective_weight: multiplies the losses of the student's recipe.
        teacher_weight: weight of the teacher's masked-token loss.
        projection_weight: weight of the distance between the parameters of the two models.
    """

    mixed_word_fraction: float = Field(default=0.5, ge=0.0, le=1.0)
    embeddings: Literal["separate", "student"] = "separate"
    objective_weight: NumberOrSchedule = ConstantSchedule(value=1.0)
    teacher_weight: NumberOrSchedule = ConstantSchedule(value=1.0)
    projection_weight: NumberOrSchedule | None = None


@dataclass(frozen=True)
class JointVocabularyDistillation:
    """A factory of the loss for joint training of a teacher and a student."""

    teacher: TextModel
    settings: JointTraining

    def fit_student(self, recipe: Recipe) -> Recipe:
        """Return the recipe unchanged."""
        return recipe

    def build_loss(self, student: Model, data: Dataset) -> PretrainingDistillationLoss:
        """Return the distillation loss of a student.

        Raises UserError if teacher and student do not share a masked-token objective, if another
        objective changes the text, or if words cannot be tokenized in both vocabularies.
        """
        require_same_sequences(student, self.teacher.model)
        masked = masked_objective_name(student, self.teacher.model)
        others = {n: o for n, o in student.recipe.objectives.items() if n != masked}
        if changing := [
            n
            for n, o in others.items()
            if o.capabilities.masks_input or o.capabilities.corrupts_input or o.permutes_input
        ]:
            raise UserError(
                f"mixed vocabularies need unchanged text, and objectives.{changing[0]} changes it: "
                f"leave it out"
            )
        if student.recipe.assembly.num_directions > 1:
            raise UserError(
                "mixed vocabularies need sequences read forward only: choose another assembly"
            )
        mixer = VocabularyMixer(
            self.settings.mixed_word_fraction,
            WordRetokenizer(data.tokenizer, self.teacher.tokenizer),
            self.teacher.model.vocab_size,
            self.teacher.tokenizer.special_tokens,
            data.tokenizer.special_tokens,
        )
        return _JointVocabularyLoss(self, student, masked, mixer)


class _JointVocabularyLoss(DistillationLoss[Batch, DeviceBatch]):
    """The teacher's masked-token loss, and the distance between the parameters of both models."""

    def __init__(
        self,
        distillation: JointVocabularyDistillation,
        student: Model,
        objective_name: str,
        mixer: VocabularyMixer,
    ) -> None:
        super().__init__()
        settings, teacher = distillation.settings, distillation.teacher
        self.fingerprint = f"{model_checksum(teacher)} {settings.model_dump_json()}"
        self._settings, self._objective_name, self._mixer = settings, objective_name, mixer
        self._recipe = student.recipe
        self.teacher = DualVocabularyModel(teacher.model, student, settings.embeddings == "student")
        self.projections = None
        if settings.projection_weight is not None:
            self.projections = SharedProjections(*_matching_variables(student, self.teacher))
        tokenizer, table_size = teacher.tokenizer, teacher.model.vocab_size
        missing = tokenizer.unused_ids | frozenset(range(tokenizer.vocab_size, table_size))
        self._vocabulary = Vocabulary(
            table_size + student.vocab_size, tokenizer.special_tokens, missing=missing
        )

    def init(self, seed: int) -> None:
        self.teacher.init(seed)
        if self.projections is not None:
            self.projections.init(seed)

    def objective_scale(self, progress: Progress) -> float:
        return self._settings.objective_weight.at(progress.fraction)

    def loss_weights(self, progress: Progress) -> dict[str, float]:
        weights = {
            TEACHER_LOSS: self._settings.teacher_weight,
            PROJECTION_LOSS: self._settings.projection_weight,
        }
        return {n: value.at(progress.fraction) for n, value in weights.items() if value is not None}

    def prepare_step(self, step: StepBatch[Batch], progress: Progress) -> StepBatch[Batch]:
        teacher_batches = [self._mixed_batch(batch, progress) for batch in step.micro_batches]
        batches = [
            replace(batch, teacher_batch=teacher_batch)
            for batch, teacher_batch in zip(step.micro_batches, teacher_batches, strict=True)
        ]
        targets = [batch.targets[self._objective_name] for batch in teacher_batches]
        counts = {TEACHER_LOSS: sum(float(target.weights.sum()) for target in targets)}
        if self.projections is not None:
            # Every micro-batch adds the same distance.
            counts[PROJECTION_LOSS] = float(len(batches))
        return replace(step, micro_batches=batches, loss_counts={**step.loss_counts, **counts})

    def losses(self, student_outputs: StudentOutputs[DeviceBatch]) -> dict[str, Loss]:
        batch, phase = student_outputs.batch.teacher_batch, student_outputs.progress.phase
        objective = self._recipe.objectives_of(phase)[self._objective_name]
        assert batch is not None, "prepare_step adds it"
        targets = batch.targets[self._objective_name]
        losses = {
            TEACHER_LOSS: self.teacher.loss(batch.token_ids, batch.token_info, targets, objective)
        }
        if self.projections is not None:
            distance = self.projections()
            losses[PROJECTION_LOSS] = Loss(distance, 1.0, distance.new_zeros(()))
        return losses

    def _mixed_batch(self, batch: Batch, progress: Progress) -> Batch:
        """Return the text of a micro-batch in mixed vocabularies, with new masks."""
        recipe, first = self._recipe, batch.first_sequence
        rng = CounterRng(
            recipe.seed, 0, progress.num_sequences + first + np.arange(len(batch.token_ids))
        )
        original = unmask(batch, self._objective_name)
        is_reserved = np.isin(original.token_ids, list(self._mixer.reserved))
        sequences = replace(original, is_special=original.is_special | is_reserved)
        sequences = self._mixer(sequences, rng.fold_in(TEACHER_LOSS))
        objective = recipe.objectives_of(progress.phase)[self._objective_name]
        by_phase = recipe.phases[progress.phase].objectives is not None
        fraction = progress.phase_fraction if by_phase else progress.fraction
        masked, targets = objective.make_targets(
            sequences, MaskingContext(rng, self._vocabulary, fraction)
        )
        num_tokens = int(masked.is_real.sum())
        return Batch(
            masked.token_ids, masked.token_info, {self._objective_name: targets}, num_tokens, first
        )


def unmask(batch: Batch, objective_name: str) -> SequenceBatch:
    """Return the sequences of a batch before an objective masked them."""
    targets, token_ids = batch.targets[objective_name], batch.token_ids.copy()
    token_ids.ravel()[targets.positions] = targets.labels
    word_ids = batch.token_info.word_ids
    is_special = np.zeros(token_ids.shape, np.bool_) if word_ids is None else word_ids < 0
    return SequenceBatch(token_ids, batch.token_info, is_special)


def _matching_variables(
    student: Model, teacher: DualVocabularyModel
) -> tuple[NamedVariables, NamedVariables]:
    """Return the corresponding parameters of both models.

    The student's are all except its heads'; the teacher's are those for the student's vocabulary.
    """
    prefix = "encoder.embeddings.tokens."
    student_variables, teacher_variables = (
        {name: v for name, v in variables.items() if not name.startswith(prefix)}
        for variables in (
            named_variables(encoder=student.encoder, output=student.output),
            named_variables(encoder=teacher.encoder, output=teacher.student_output),
        )
    )
    if teacher.embeddings.student_embedding is not None:
        student_variables[prefix] = student.embedding_table, 1
        teacher_variables[prefix] = teacher.embeddings.student_embedding.weight, 1
    return student_variables, teacher_variables
