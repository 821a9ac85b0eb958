"""The file ``task.json`` of a fine-tuned model."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from bertwright.core.config import Settings, to_user_error
from bertwright.core.files import parse_json, read_text
from bertwright.models.saving import (
    TASK_FILE,
)
from bertwright.tasks.adapters import AdaptationConfig
from bertwright.tasks.conformal.calibration import ConformalCalibration
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec

if TYPE_CHECKING:  # a model loads without SciPy
    pass


class TaskMetadata(Settings):
    """The content of ``task.json``."""

    task: Task
    head: HeadConfig
    adaptation: AdaptationConfig
    max_length: int = Field(ge=1, le=1 << 20)
    temperature: float = Field(ge=1e-6, le=1e6)
    conformal: ConformalCalibration | None = None

    @property
    def head_spec(self) -> HeadSpec:
        """The head with its number of outputs."""
        return HeadSpec(self.head, num_outputs(self.task), self.task.output_type.kind_name())


def read_task_metadata(folder: Path) -> TaskMetadata:
    """Read the task of a folder; UserError if the file is damaged."""
    file = folder / TASK_FILE
    content = parse_json(read_text(file), str(file), "copy it again")
    try:
        return TaskMetadata.model_validate(content)
    except ValidationError as error:
        raise to_user_error(error, f"{file} is damaged or of another version") from error


def num_outputs(task: Task) -> int:
    """Return the number of head outputs for a task whose labels are known."""
    return task.output_type.build_decoder(task.labels).num_outputs
