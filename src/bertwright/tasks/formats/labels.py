"""Labels as written in files: a class, a number, several labels of a text, or another text.

Missing values are rejected in every spelling: otherwise they would be trained on as a class.
"""

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.files import loads_json

LabelKind = Literal["class", "number", "labels", "text"]

Label = str | float | tuple[str, ...]

LocatedValue = tuple[str, Any]
"""Location of a value, for messages, and the value itself."""

MAX_NUMBER = 1e30
"""Larger numbers are rejected as mistakes: their squares overflow."""

_MISSING = frozenset(
    (
        *("", "nan", "-nan", "null", "n/a", "<na>", "#n/a", "#na", "1.#qnan", "1.#ind"),
        *("inf", "-inf", "+inf", "infinity", "-infinity", "+infinity"),
    )
)
"""Spellings of a missing value, in lower case."""

_MISSING_AS_SPELLED = frozenset(("None", "NA", "NaT"))
"""Spellings that in another case may be a class (``none``: no topic applies)."""


def read_labels(kind: LabelKind, values: Sequence[LocatedValue], separator: str) -> list[Label]:
    """Return the labels of all rows of a file.

    Several labels are a list of names, names separated by ``separator``, or an indicator vector,
    whose label names are indices from 0. The interpretation is chosen for the whole file: ``[0,
    1]`` alone could be either names or indicators.

    Errors: UserError, with the row, for a missing or invalid value.
    """
    if kind == "number":
        return [parse_number(location, value) for location, value in values]
    if kind == "class":
        return [parse_class(location, value) for location, value in values]
    if kind == "text":
        return [parse_text(location, value) for location, value in values]
    rows = [(location, _as_list(location, value, separator)) for location, value in values]
    if _are_indicators(rows):
        return [_indicator_labels(row) for _, row in rows]
    return [label_names(location, row) for location, row in rows]


def parse_number(location: str, value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, str) and not value.strip():
        _require_present(location, value)
    try:
        number = math.nan if isinstance(value, bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < MAX_NUMBER:
        raise UserError(f"{location}: expected a number, got {_format_value(value)}")
    return number


def parse_class(location: str, value: Any) -> str:
    """Return the name of a class: a text as is, a boolean as in JSON, or a number.

    Whole numbers lose their fraction, because tables with gaps write ``1`` as ``1.0``.
    """
    value = value.item() if isinstance(value, np.generic) else value
    _require_present(location, value)
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float | Decimal):
        return str(int(value)) if value == int(value) else str(value)
    raise UserError(f"{location}: expected a label, got {_format_value(value)}")


def parse_text(location: str, value: Any) -> str:
    """Return a text that is to be generated, stripped; UserError if it is empty or no text."""
    if not isinstance(value, str):
        raise UserError(f"{location}: expected a text, got {_format_value(value)}")
    if not value.strip():
        raise UserError(f"{location}: the text to generate is empty: remove the line")
    return value.strip()


def label_names(location: str, values: Any) -> tuple[str, ...]:
    """Return the labels of a text by name; UserError for duplicates."""
    if not isinstance(values, list | tuple):
        raise UserError(f"{location}: expected a list of labels, got {_format_value(values)}")
    labels = tuple(parse_class(location, value) for value in values)
    if duplicate := next((name for name in labels if labels.count(name) > 1), None):
        raise UserError(
            f"{location} has the label {duplicate!r} twice: write each label of the text once, or "
            f"use indicator vectors of equal length in all rows"
        )
    return labels


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, an infinity, or a text that stands for them."""
    if isinstance(value, str):
        text = value.strip()
        return text.lower() in _MISSING or text in _MISSING_AS_SPELLED
    return value is None or (isinstance(value, float | Decimal) and not math.isfinite(value))


def _require_present(location: str, value: Any) -> None:
    if not is_missing(value):
        return
    if isinstance(value, str) and not value.strip():
        raise UserError(f"{location} is empty: add the label, or remove the row")
    raise UserError(
        f"{location}: expected a label, got {_format_value(value)}, which means a missing one: add "
        f"the label, remove the row, or rename the class"
    )


def _as_list(location: str, value: Any, separator: str) -> list[Any]:
    """Return a value of several labels as a list."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            if text and is_missing(text):
                _require_present(location, text)
            return [part.strip() for part in text.split(separator) if part.strip()]
        try:
            value = loads_json(text)
        except ValueError:
            raise UserError(
                f"{location}: {text[:80]!r} is not a JSON list: separate names by {separator!r}, "
                f"or write a list such as {json.dumps(['one', 'two'])}"
            ) from None
    return [*value] if isinstance(value, list | tuple) else [*label_names(location, value)]


def _are_indicators(rows: Sequence[tuple[str, list[Any]]]) -> bool:
    """Return whether all rows are indicator vectors: zeros and ones, of equal length from 2.

    Rows that could also be lists of names are excluded: indicators must be numbers or booleans, or
    some row must repeat a value.
    """
    lengths = {len(row) for _, row in rows}
    if len(lengths) != 1 or max(lengths) < 2:
        return False
    flat = [value for _, row in rows for value in row]
    if not all(_indicator_value(value) is not None for value in flat):
        return False
    has_strings = any(isinstance(value, str) for value in flat)
    return not has_strings or any(len(set(row)) < len(row) for _, row in rows)


def _indicator_value(value: Any) -> bool | None:
    """Return an entry of an indicator vector as a bool; None for any other value."""
    if isinstance(value, str):
        return {"0": False, "1": True}.get(value)
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    return None


def _indicator_labels(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(index) for index, value in enumerate(row) if _indicator_value(value))


def _format_value(value: Any) -> str:
    """Return a value as a file writes it, shortened."""
    if isinstance(value, str):
        return quote(value)
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else f"{text[:80]}..."
