"""Plan of a comparison: tasks with their data, and the settings of both sides."""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from benchmarks.task_data import TaskDataSettings
from bertwright.core.config import Settings, to_user_error
from bertwright.models.text_model import TextModel
from bertwright.recipes.loading import read_yaml
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.outputs import OutputType


class FineTuningTask(TaskDataSettings):
    """A task with its data and settings.

    Attributes:
        timed_steps: steps of each side per timing round.
    """

    timed_steps: int = Field(default=50, ge=1)
    epochs: int = Field(default=3, ge=1)
    learning_rate: float = Field(default=5e-5, gt=0)
    batch_size: int = Field(default=32, ge=1)
    max_length: int = Field(default=128, ge=8)

    def build_part(self, model: TextModel) -> EncodedTask:
        """Return the encoded examples."""
        return EncodedTask.encode(
            *self.load_examples().load_splits(), self.build_example_encoder(model)
        )

    def build_example_encoder(self, model: TextModel) -> ExampleEncoder:
        """Return the example encoder of a model."""
        encoder, recipe = model.model.encoder, model.model.recipe
        return ExampleEncoder.from_recipe(
            recipe, model.tokenizer, encoder.max_length, self.max_length
        )


class FineTuningPlan(Settings):
    """Tasks, settings and seeds.

    Attributes:
        encoder: a Hugging Face folder; by default all-MiniLM-L6-v2.
        margin: difference of scores below which both sides are equivalent.
        max_seeds: maximum number of seeds; three are added at a time until a task is decided.
    """

    encoder: Path | None = None
    margin: float = Field(default=0.01, gt=0)
    max_seeds: int = Field(default=12, ge=3, le=24, multiple_of=3)
    warmup: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.1
    tasks: dict[str, FineTuningTask]

    @staticmethod
    def load(file: Path) -> "FineTuningPlan":
        """Read a plan; UserError names the wrong key."""
        stated: dict[str, Any] = read_yaml(file)
        try:
            return FineTuningPlan.model_validate(stated)
        except ValidationError as error:
            raise to_user_error(error, str(file)) from error


def finetuning_settings(
    plan: FineTuningPlan, task: FineTuningTask, output_type: OutputType
) -> FineTuningConfig:
    """Return the settings of a task, with the head of the stock class."""
    return FineTuningConfig.from_settings(
        {
            "epochs": task.epochs,
            "learning_rate": task.learning_rate,
            "batch_size": task.batch_size,
            "max_length": task.max_length,
            "dropout": plan.dropout,
            "weight_decay": plan.weight_decay,
            "warmup": plan.warmup,
            "head": {"kind": "plain", "pooling": "positions"}
            if output_type.level == "token"
            else "pooler",
        }
    )
