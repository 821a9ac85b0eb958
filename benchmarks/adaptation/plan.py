"""Plan of a comparison: encoders, tasks and methods of fine-tuning."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from benchmarks.task_data import TaskDataSettings
from bertwright.core.config import Settings, did_you_mean, to_user_error
from bertwright.recipes.loading import merge, read_yaml
from bertwright.tasks.finetuning.config import FineTuningConfig


class AdaptationTask(TaskDataSettings):
    """A task with its data and its settings."""

    settings: dict[str, Any] = Field(default_factory=dict[str, Any])


class AdaptationMethod(Settings):
    """Settings of fine-tuning.

    Attributes:
        auxiliary_tasks: tasks that are trained jointly.
        tasks: the tasks to which the method is applied; all by default.
    """

    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    auxiliary_tasks: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None


class AdaptationPlan(Settings):
    """Every method on every task with every encoder.

    Attributes:
        encoders: model folders by name; null is all-MiniLM-L6-v2.
        settings: settings of all runs.
        baseline: the method that every other one is compared with, seed by seed.
    """

    description: str
    source: str = ""
    encoders: dict[str, Path | None]
    tasks: dict[str, AdaptationTask]
    methods: dict[str, AdaptationMethod]
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    baseline: str | None = None
    seeds: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _require_known_names(self) -> Self:
        references = [("baseline", self.baseline, self.methods)]
        for method in self.methods.values():
            references += [("auxiliary_tasks", t, self.tasks) for t in method.auxiliary_tasks]
            references += [("tasks", task, self.tasks) for task in method.tasks or ()]
        for key, name, known in references:
            if name is not None and name not in known:
                raise ValueError(f"{key}: there is no {name!r}{did_you_mean(name, known)}")
        for method in self.methods:
            for task in self.tasks:
                FineTuningConfig.from_settings(self.settings_of(task, method, seed=0))
        return self

    @staticmethod
    def load(file: Path) -> "AdaptationPlan":
        """Read a plan; UserError names the wrong key."""
        stated: Mapping[str, Any] = read_yaml(file)
        try:
            return AdaptationPlan.model_validate(stated)
        except ValidationError as error:
            raise to_user_error(error, str(file)) from error

    def settings_of(self, task: str, method: str, seed: int) -> dict[str, Any]:
        """Return the settings of one run: of the plan, the task and the method."""
        stated = merge(
            merge(self.settings, self.tasks[task].settings), self.methods[method].settings
        )
        return {**stated, "seed": seed}
