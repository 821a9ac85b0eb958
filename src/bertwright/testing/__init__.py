"""Checks for plugins: the same requirements that the package's own kinds satisfy.

Each function raises AssertionError with one sentence, and can be called from any test framework.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertwright.testing.analyses import check_analysis
    from bertwright.testing.families import check_family
    from bertwright.testing.objectives import check_objective
    from bertwright.testing.recipes import check_recipe
    from bertwright.testing.tasks import check_task

__all__ = [
    "check_analysis",
    "check_family",
    "check_objective",
    "check_recipe",
    "check_task",
]

_MODULES = {
    "check_analysis": "analyses",
    "check_family": "families",
    "check_objective": "objectives",
    "check_recipe": "recipes",
    "check_task": "tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
