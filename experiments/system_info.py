"""The ``about`` section of a recipe file: survey number, deviations, parameter counts."""

from typing import Any

from pydantic import Field, ValidationError

from bertwright.core.config import Settings, to_user_error
from bertwright.models.costs import num_parameters_by_part
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read_system_file


class ParameterCount(Settings):
    """A known number of parameters: of ``parts``, or of all, after ``changes``."""

    size: str = "base"
    changes: dict[str, Any] = Field(default_factory=dict)
    parts: tuple[str, ...] | None = None
    parameters: int


class SystemInfo(Settings):
    """``parameters`` are counts of whole models by size; ``counts`` need more detail."""

    system: str
    deviations: str = ""
    parameters: dict[str, int] = Field(default_factory=dict)
    counts: tuple[ParameterCount, ...] = ()

    def all_parameter_counts(self) -> list[ParameterCount]:
        """Return all known parameter counts."""
        counts = [ParameterCount(size=size, parameters=n) for size, n in self.parameters.items()]
        return [*counts, *self.counts]


def read_system_info(system: str) -> SystemInfo:
    """Return the ``about`` section of a system's file. Errors: UserError if it is invalid."""
    try:
        return SystemInfo.model_validate(read_system_file(system).get("about", {}))
    except ValidationError as error:
        raise to_user_error(error, f"about {system}") from error


def num_parameters_of(system: str, count: ParameterCount) -> int:
    """Return the number of parameters that a published count of ``system`` covers."""
    parts = num_parameters_by_part(Recipe.load(f"{system}-{count.size}", count.changes))
    return sum(n for part, n in parts.items() if count.parts is None or part in count.parts)
