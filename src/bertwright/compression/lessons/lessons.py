"""The files that say what a teacher says in pre-training."""

from pydantic import Field

from bertwright.axes import Settings
from bertwright.compression.lessons.pre_distillation import PreDistillation
from bertwright.compression.lessons.stages import LessonStage
from bertwright.compression.method import read_named
from bertwright.model.text_model import TextModel

LESSONS = "bertwright.compression.lessons"
"""Where they stand."""


class Lessons(Settings):
    """A way to teach a student that reads the same text.

    Attributes:
        stages: what is heard, part by part of the run.
        around: whether what is no block of the student begins as it is in its teacher.
    """

    about: str
    source: str
    stages: tuple[LessonStage, ...] = Field(min_length=1)
    around: bool = False

    @staticmethod
    def load(name: str) -> "Lessons":
        """By name, or of a file of one's own.

        Errors: UserError for lessons that are not there, or cannot be.
        """
        return read_named(name, LESSONS, Lessons, "lessons")

    def of(self, teacher: TextModel) -> PreDistillation:
        """By this teacher."""
        return PreDistillation(teacher, self.stages, self.around)
