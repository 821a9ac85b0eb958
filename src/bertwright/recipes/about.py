"""What a recipe file says of its system, beside the recipe: ``about``.

Its number in the survey that the project follows, where it departs from what was published, and how
many parameters it must have to the last one.
"""

from typing import Any

from pydantic import Field, ValidationError

from bertwright.axes import Settings, explain
from bertwright.recipes.loading import stated_about


class Count(Settings):
    """A number of parameters that is known: of ``parts``, or of all, after ``changes``."""

    size: str = "base"
    changes: dict[str, Any] = Field(default_factory=dict)
    parts: tuple[str, ...] | None = None
    parameters: int


class About(Settings):
    """``parameters`` counts whole models by size; ``counts`` what needs more words."""

    system: str
    deviations: str = ""
    parameters: dict[str, int] = Field(default_factory=dict)
    counts: tuple[Count, ...] = ()

    def all_counts(self) -> list[Count]:
        """Every number that is known."""
        whole = [Count(size=size, parameters=n) for size, n in self.parameters.items()]
        return [*whole, *self.counts]


def about(system: str) -> About:
    """What a system's file says of it.

    Errors: UserError where it cannot be.
    """
    try:
        return About.model_validate(stated_about(system))
    except ValidationError as error:
        raise explain(error, f"about {system}") from error
