"""Any task of the catalogue by ``finetune``: a linear head on a frozen model, or all of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.tasks.labelled import LabelledSuiteTask, LabelledTask, prediction_values
from bertwright.suites.tasks.suite_task import Predictions, PreparedTask
from bertwright.tasks.adapters import FrozenEncoderConfig
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune


@dataclass(frozen=True)
class PreparedFineTuning(LabelledTask):
    """A task that a model is fine-tuned for; a prediction is a value as in the task's files."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def method(self) -> str:
        config = FineTuningConfig.from_settings(self.settings)
        examples = f"{len(self.train):,} training examples"
        if isinstance(config.adaptation, FrozenEncoderConfig):
            return f"frozen probe: linear head on hidden states, {examples}"
        kind = config.adaptation.kind_name()
        return f"fine-tuned ({kind}) for {config.epochs} epochs on {examples}"

    def predict(self, model: TextModel) -> Predictions:
        settings: dict[str, Any] = {"calibrate": False, **self.settings}
        result = finetune(model, self.task, train=self.train, dev=self.dev, **settings)
        return prediction_values(result.best.predictions[0])


class FineTuningTask(LabelledSuiteTask):
    """A task of any kind, for which the model is fine-tuned with the ``settings`` of finetune.

    With several epochs the best one on the scored examples is kept, as ``finetune`` does.
    """

    kind: Literal["fine-tuning"] = "fine-tuning"
    settings: dict[str, Any] = Field(default_factory=lambda: {"adaptation": "frozen"})

    @field_validator("settings")
    @classmethod
    def _require_valid_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        try:
            FineTuningConfig.from_settings(settings)
        except UserError as error:
            raise ValueError(str(error)) from None
        return settings

    def prepare(self, data: Path) -> PreparedTask:
        return PreparedFineTuning(*self.read_examples(data), settings=self.settings)
