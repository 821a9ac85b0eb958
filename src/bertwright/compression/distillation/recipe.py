"""Files that describe distillation in pre-training."""

from typing import Self

from pydantic import model_validator

from bertwright.compression.distillation.joint_vocabulary import (
    JointTraining,
    JointVocabularyDistillation,
)
from bertwright.compression.distillation.pretraining_loss import TeacherPretrainingDistillation
from bertwright.compression.distillation.stages import DistillationStage
from bertwright.compression.method import load_resource
from bertwright.core.config import Settings
from bertwright.models.text_model import TextModel
from bertwright.training.distillation_loss import PretrainingDistillation

RECIPES_PACKAGE = "bertwright.compression.distillation.recipes"
"""Package with the recipe files."""


class DistillationRecipe(Settings):
    """A published distillation in pre-training, by a frozen teacher or by joint training.

    Attributes:
        stages: the distillation losses of a frozen teacher, stage by stage.
        copy_non_block_weights: start the student with the teacher's weights outside of the blocks.
        joint_training: train the teacher together with the student.
    """

    description: str
    source: str
    stages: tuple[DistillationStage, ...] = ()
    copy_non_block_weights: bool = False
    joint_training: JointTraining | None = None

    @model_validator(mode="after")
    def _check_one_kind(self) -> Self:
        if (self.joint_training is None) != bool(self.stages) or (
            self.joint_training and self.copy_non_block_weights
        ):
            raise ValueError(
                "state either stages, with or without copy_non_block_weights, or joint_training"
            )
        return self

    @staticmethod
    def load(name: str) -> "DistillationRecipe":
        """Load a recipe by its name, or from a file by its path.

        Raises UserError if there is no such recipe or the file is invalid.
        """
        return load_resource(name, RECIPES_PACKAGE, DistillationRecipe, "distillation recipe")

    def distillation(self, teacher: TextModel) -> PretrainingDistillation:
        """Return the distillation from this teacher."""
        if self.joint_training is not None:
            return JointVocabularyDistillation(teacher, self.joint_training)
        return TeacherPretrainingDistillation(teacher, self.stages, self.copy_non_block_weights)
