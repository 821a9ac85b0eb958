"""What is compared: encoders, tasks, and ways to adapt the one to the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from bertwright.axes import Settings, did_you_mean, explain
from bertwright.bench.stated_data import StatedData
from bertwright.recipes.loading import merged, read_yaml
from bertwright.tasks.finetuning_settings import FineTuning


class Given(StatedData):
    """A task with its data, and settings of its own."""

    settings: dict[str, Any] = Field(default_factory=dict[str, Any])


class Way(Settings):
    """Settings of fine-tuning; with ``beside`` the named tasks are learned along. Only these
    ``tasks`` are adapted so, or all."""

    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    beside: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None


class Plan(Settings):
    """The whole: what is asked, and of what.

    Attributes:
        encoders: model folders by name; null is that of the package with all-MiniLM-L6-v2.
        settings: of all of them.
        against: the way with which each of the others is compared, on equal seeds.
    """

    question: str
    source: str = ""
    encoders: dict[str, Path | None]
    tasks: dict[str, Given]
    ways: dict[str, Way]
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    against: str | None = None
    seeds: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _names_that_exist(self) -> Self:
        named = [("against", self.against, self.ways)]
        for way in self.ways.values():
            named += [("beside", task, self.tasks) for task in way.beside]
            named += [("tasks", task, self.tasks) for task in way.tasks or ()]
        for key, name, known in named:
            if name is not None and name not in known:
                raise ValueError(f"{key}: there is no {name!r}{did_you_mean(name, known)}")
        for way in self.ways:
            for task in self.tasks:
                FineTuning.of(self.settings_of(task, way, seed=0))
        return self

    @staticmethod
    def load(file: Path) -> "Plan":
        """Read a plan; UserError that names the key for what cannot be."""
        stated: Mapping[str, Any] = read_yaml(file)
        try:
            return Plan.model_validate(stated)
        except ValidationError as error:
            raise explain(error, str(file)) from error

    def settings_of(self, task: str, way: str, seed: int) -> dict[str, Any]:
        """The settings of one run: those of all, of the task, and of the way."""
        stated = merged(merged(self.settings, self.tasks[task].settings), self.ways[way].settings)
        return {**stated, "seed": seed}
