"""The checks, one file for each.

A file has a ``CHECK``, and a function that runs it. To add a check, add a file.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from experiments.compressions.check import CompressionCheck


@cache
def all_checks() -> tuple[CompressionCheck, ...]:
    """Return all checks, sorted by number."""
    checks: list[CompressionCheck] = []
    for module in iter_modules(__path__):
        check = import_module(f"{__name__}.{module.name}").CHECK
        assert isinstance(check, CompressionCheck), f"{module.name} has no check"
        checks.append(check)
    return tuple(sorted(checks, key=sort_key))


def sort_key(check: CompressionCheck) -> tuple[int, str]:
    """Return the sort key of a check: its number."""
    return len(check.number), check.number


def select_checks(names: list[str]) -> list[CompressionCheck]:
    """Return the checks of these numbers or names; all without any.

    Raises UserError for an unknown check.
    """
    known = {name: check for check in all_checks() for name in (check.number.lower(), check.name)}
    for name in names:
        if name.lower() not in known:
            raise UserError(f"there is no check {name!r}{did_you_mean(name, known)}")
    selected = [known[name.lower()] for name in names]
    return [check for check in all_checks() if check in selected or not names]
