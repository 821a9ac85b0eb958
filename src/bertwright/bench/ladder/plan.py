"""What is held against each other: tasks that one model learns, and ways to make it small then."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from bertwright.axes import Settings, did_you_mean, explain
from bertwright.bench.adapting.plan import Given
from bertwright.compression.method import Method
from bertwright.recipes.loading import merged, read_yaml
from bertwright.tasks.finetuning_settings import FineTuning

Form = Literal["float32", "bf16", "int8", "graph", "graph-int8"]
"""As what a model answers: its weights in a precision, or onnxruntime with its graph."""


class Way(Settings):
    """A way to make a fine-tuned model small; without a ``method`` it stays as it is.

    Attributes:
        student: a model folder, or a recipe, of which the student is made; else the model itself.
        layers: how many of them it has.
        alone: whether the same student learns without its teacher as well.
        settings: of fine-tuning, for all stages of the method.
        trimmed: whether pieces that no example needs are taken out of what has been made.
        forms: as what it is scored, weighed and timed.
        tasks: those that it is tried on, or all.
    """

    method: str | None = None
    student: str | None = None
    layers: int | None = Field(default=None, ge=1)
    alone: bool = False
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    trimmed: bool = False
    forms: tuple[Form, ...] = Field(default=("float32",), min_length=1)
    tasks: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _of_a_method(self) -> Self:
        told = self.model_fields_set & {"student", "layers", "alone", "settings"}
        if self.method is None and told:
            raise ValueError(f"{', '.join(sorted(told))}: there is no method that heeds it")
        return self


class Plan(Settings):
    """The whole: what is asked, and of what.

    Attributes:
        encoder: a model folder; null is that of the package with all-MiniLM-L6-v2.
        settings: by which it learns its tasks.
        timed: tasks whose models are timed, or all: where they differ in what they answer and
            not in shape, one is enough.
        base: the way, in its first form, that all are held against: one without a method.
    """

    question: str
    source: str = ""
    encoder: Path | None = None
    tasks: dict[str, Given]
    ways: dict[str, Way]
    base: str
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    timed: tuple[str, ...] | None = None
    seeds: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _things_that_exist(self) -> Self:
        if self.base not in self.ways:
            raise ValueError(
                f"base: there is no way {self.base!r}{did_you_mean(self.base, self.ways)}"
            )
        base = self.ways[self.base]
        if base.method is not None or base.tasks is not None:
            raise ValueError(f"base: {self.base} has a method or some tasks: leave these out")
        self._require_tasks("timed", self.timed)
        for name, way in self.ways.items():
            self._require_tasks(f"ways.{name}.tasks", way.tasks)
            if way.method is not None:
                Method.load(way.method)
            FineTuning.of(way.settings)
        for task in self.tasks:
            FineTuning.of(self.learning(task, seed=0))
        return self

    def _require_tasks(self, key: str, named: tuple[str, ...] | None) -> None:
        for task in named or ():
            if task not in self.tasks:
                raise ValueError(f"{key}: there is no {task!r}{did_you_mean(task, self.tasks)}")

    @staticmethod
    def load(file: Path) -> "Plan":
        """Read a plan; UserError that names the key for what cannot be."""
        try:
            return Plan.model_validate(read_yaml(file))
        except ValidationError as error:
            raise explain(error, str(file)) from error

    def learning(self, task: str, seed: int) -> dict[str, Any]:
        """The settings by which the model learns a task."""
        return {**merged(self.settings, self.tasks[task].settings), "seed": seed}
