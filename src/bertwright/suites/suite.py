"""A suite: tasks by name, and the text that word vectors are trained on."""

from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from bertwright.core.config import Settings, did_you_mean, to_user_error
from bertwright.core.errors import UserError
from bertwright.recipes.loading import read_yaml
from bertwright.recipes.yaml_values import parse_yaml
from bertwright.suites.tasks import SuiteTask
from bertwright.suites.word_vectors import WordVectorTraining

STANDARD = "standard"
"""The suite that comes with the package."""


class EvaluationSuite(Settings):
    """Tasks by name, in the order of the report.

    Attributes:
        name: the name of the file.
        about: what the suite measures, for the report.
        word_vectors: how the word vectors are trained that serve as a baseline; None for none.
    """

    name: str
    about: str = ""
    tasks: dict[str, SuiteTask] = Field(min_length=1)
    word_vectors: WordVectorTraining | None = None

    @staticmethod
    def load(file: Path | None = None) -> "EvaluationSuite":
        """Read a suite, by default the standard one; UserError names the file and the wrong key."""
        if file is None:
            text = (resources.files("bertwright.suites") / f"{STANDARD}.yaml").read_text("utf-8")
            stated: Any = parse_yaml(text)
            return _parse_suite(STANDARD, stated, f"{STANDARD}.yaml")
        return _parse_suite(file.stem, read_yaml(file), str(file))

    def select(self, names: list[str]) -> "EvaluationSuite":
        """Return the suite with these tasks only; UserError for an unknown one."""
        if unknown := next((name for name in names if name not in self.tasks), None):
            hint = did_you_mean(unknown, self.tasks)
            raise UserError(f"suite {self.name} has no task {unknown!r}{hint}")
        return self.model_copy(
            update={"tasks": {n: self.tasks[n] for n in self.tasks if n in names}}
        )


def _parse_suite(name: str, stated: Any, location: str) -> EvaluationSuite:
    try:
        return EvaluationSuite.model_validate({"name": name, **stated})
    except ValidationError as error:
        raise to_user_error(error, location) from error
