"""The rows, one file for each: what is in this folder is checked.

A file has a ``ROW``, and a function that asks it. To add a row, add a file.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.studies.compression_checks.row import Row


@cache
def all_rows() -> tuple[Row, ...]:
    """All of them, by their numbers."""
    found: list[Row] = []
    for module in iter_modules(__path__):
        row = import_module(f"{__name__}.{module.name}").ROW
        assert isinstance(row, Row), f"{module.name} has no row"
        found.append(row)
    return tuple(sorted(found, key=place))


def place(row: Row) -> tuple[int, str]:
    """Where it stands among others."""
    return len(row.number), row.number


def chosen(names: list[str]) -> list[Row]:
    """Those of these numbers or names; all where none is named.

    Errors: UserError for a row that is not there.
    """
    known = {name: row for row in all_rows() for name in (row.number.lower(), row.name)}
    for name in names:
        if name.lower() not in known:
            raise UserError(f"there is no row {name!r}{did_you_mean(name, known)}")
    wanted = [known[name.lower()] for name in names]
    return [row for row in all_rows() if row in wanted or not names]
