"""The inputs of estimators: texts, or tables whose cells are texts or numbers."""

from collections.abc import Sequence
from numbers import Number, Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from bertwright.tasks.formats.examples import Example

TextRow = tuple[str, ...]
"""The texts of a row, one for each column."""

SIGNIFICANT_DIGITS = 4
"""Digits with which a number that is no integer is written as text."""


def read_rows(
    estimator: BaseEstimator,
    X: Any,  # noqa: N803
    *,
    reset: bool,
    min_rows: int = 1,
) -> list[TextRow]:
    """Return the texts of N rows, given N texts or a table (N, columns).

    ``X`` is a list, an array, a Series or a DataFrame; numbers in a table are written as text.
    ``reset`` stores the columns in the estimator, as in ``fit``; else they are compared with the
    stored ones. Errors: ValueError for a single string, less than ``min_rows`` rows, numbers
    without a second dimension, missing values, and other columns than in ``fit``; TypeError for
    other cells.
    """
    if isinstance(X, str):
        raise ValueError("an iterable of texts is expected, and X is one string: pass [X]")
    is_numeric = _is_array(X) and X.dtype.kind in "biufc"
    settings: dict[str, Any] = {
        "dtype": None if is_numeric else object,
        "ensure_min_samples": min_rows,
        "estimator": estimator,
    }
    array = check_array(X, ensure_2d=False, **settings)
    is_column = array.ndim == 1
    invalid = [cell for cell in array.tolist() if not isinstance(cell, str)] if is_column else []
    if invalid:
        raise ValueError(
            f"a 1D array holds texts, and this one holds {invalid[0]!r}: Reshape your data with "
            f"reshape(-1, 1), or pass a table"
        )
    columns = array[:, None] if is_column else X
    del settings["estimator"]
    table = cast("NDArray[Any]", validate_data(estimator, columns, reset=reset, **settings))
    return [tuple(map(_as_text, row)) for row in table.tolist()]


def as_examples(rows: Sequence[TextRow]) -> list[Example]:
    """Return rows as examples: two columns are a pair; the cells of more are joined to one text."""
    return [Example(row[0], row[1]) if len(row) == 2 else Example(" ".join(row)) for row in rows]


def _is_array(X: Any) -> bool:  # noqa: N803
    """Return whether an input has one NumPy dtype, unlike a DataFrame or a list."""
    return isinstance(getattr(X, "dtype", None), np.dtype)


def _as_text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, Number):
        raise TypeError(f"argument must be a string or a number, not {type(cell).__name__}")
    if not np.isfinite(complex(cast(Any, cell))):
        raise ValueError("Input X contains infinity or NaN: fill these cells, or leave rows out")
    if isinstance(cell, Real) and float(cell).is_integer():
        return str(int(cast(Any, cell)))
    return f"{cell:.{SIGNIFICANT_DIGITS}g}"
