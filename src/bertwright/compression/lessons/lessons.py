"""The files that say what a teacher says in pre-training."""

from typing import Self

from pydantic import model_validator

from bertwright.axes import Settings
from bertwright.compression.lessons.pre_distillation import PreDistillation
from bertwright.compression.lessons.stages import LessonStage
from bertwright.compression.lessons.together import LearningTeacher, Together
from bertwright.compression.method import read_named
from bertwright.model.text_model import TextModel
from bertwright.training.teaching import PieceTeacher

LESSONS = "bertwright.compression.lessons"
"""Where they stand."""


class Lessons(Settings):
    """A way to teach a student that reads the same text.

    Attributes:
        stages: what is heard of a teacher that stays as it is, part by part of the run.
        around: whether what is no block of the student begins as it is in that teacher.
        together: how a teacher learns beside its student.
    """

    about: str
    source: str
    stages: tuple[LessonStage, ...] = ()
    around: bool = False
    together: Together | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.together is None) != bool(self.stages) or (self.together and self.around):
            raise ValueError("states either stages, with around or without, or together")
        return self

    @staticmethod
    def load(name: str) -> "Lessons":
        """By name, or of a file of one's own.

        Errors: UserError for lessons that are not there, or cannot be.
        """
        return read_named(name, LESSONS, Lessons, "lessons")

    def of(self, teacher: TextModel) -> PieceTeacher:
        """By this teacher."""
        if self.together is not None:
            return LearningTeacher(teacher, self.together)
        return PreDistillation(teacher, self.stages, self.around)
