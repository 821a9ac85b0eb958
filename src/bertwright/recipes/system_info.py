"""The ``about`` section of a recipe file: survey number, deviations, parameter counts."""

from typing import Any

from pydantic import Field, ValidationError

from bertwright.core.config import Settings, to_user_error
from bertwright.recipes.loading import read_about


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
        return SystemInfo.model_validate(read_about(system))
    except ValidationError as error:
        raise to_user_error(error, f"about {system}") from error
