"""Labels as files spell them: a class, a number, or the labels of a text that may have several.

A missing value is refused by any of its spellings: training on it would make it a class.
"""

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from bertwright.axes import quoted
from bertwright.errors import UserError

LabelIs = Literal["class", "number", "labels"]

Label = str | float | tuple[str, ...]

Located = tuple[str, Any]
"""Where a value stands, for messages, and the value."""

GREATEST = 1e30
"""A number beyond it is taken for a mistake: its square overflows."""

_MISSING = frozenset(
    (
        *("", "nan", "-nan", "null", "n/a", "<na>", "#n/a", "#na", "1.#qnan", "1.#ind"),
        *("inf", "-inf", "+inf", "infinity", "-infinity", "+infinity"),
    )
)
"""What programs write where there is no value, in lower case."""

_MISSING_AS_SPELLED = frozenset(("None", "NA", "NaT"))
"""The same, where another case is a class as often (``none``: no topic applies)."""


def read_labels(kind: LabelIs, values: Sequence[Located], separator: str) -> list[Label]:
    """Return the labels of all rows of a file.

    Several labels are a list of names, a text of names with ``separator`` between, or an indicator
    vector, whose names are then the indices from 0. What they are is a matter of the whole file:
    ``[0, 1]`` alone could be either.

    Errors: UserError, naming the row, for a value that is missing or of another shape.
    """
    if kind == "number":
        return [finite_number(where, value) for where, value in values]
    if kind == "class":
        return [class_name(where, value) for where, value in values]
    rows = [(where, _listed(where, value, separator)) for where, value in values]
    if _are_indicators(rows):
        return [_indicated(row) for _, row in rows]
    return [names(where, row) for where, row in rows]


def finite_number(where: str, value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, str) and not value.strip():
        _require_present(where, value)
    try:
        number = math.nan if isinstance(value, bool | np.bool_) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) < GREATEST:
        raise UserError(f"{where}: expected a number, found {_shown(value)}")
    return number


def class_name(where: str, value: Any) -> str:
    """Return the name of a class: a text as it is spelled, a truth value as JSON writes it, and a
    whole number without a fraction, as tables with gaps write ``1`` as ``1.0``."""
    value = value.item() if isinstance(value, np.generic) else value
    _require_present(where, value)
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float | Decimal):
        return str(int(value)) if value == int(value) else str(value)
    raise UserError(f"{where}: expected a label, found {_shown(value)}")


def names(where: str, values: Any) -> tuple[str, ...]:
    """Return the labels of one text by name, none of them twice."""
    if not isinstance(values, list | tuple):
        raise UserError(f"{where}: expected a list of labels, found {_shown(values)}")
    labels = tuple(class_name(where, value) for value in values)
    if twice := next((name for name in labels if labels.count(name) > 1), None):
        raise UserError(
            f"{where} names the label {twice!r} twice: name each label of the text once, or give "
            f"an indicator vector of one length in all rows"
        )
    return labels


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN, an infinity, or a text that says so."""
    if isinstance(value, str):
        text = value.strip()
        return text.lower() in _MISSING or text in _MISSING_AS_SPELLED
    return value is None or (isinstance(value, float | Decimal) and not math.isfinite(value))


def _require_present(where: str, value: Any) -> None:
    if not is_missing(value):
        return
    if isinstance(value, str) and not value.strip():
        raise UserError(f"{where} is empty: state the label, or leave the row out")
    raise UserError(
        f"{where}: expected a label, found {_shown(value)}, which stands for a missing one: state "
        f"the label, leave the row out, or give the class another name"
    )


def _listed(where: str, value: Any, separator: str) -> list[Any]:
    """Return what stands for several labels as a list."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            if text and is_missing(text):
                _require_present(where, text)
            return [part.strip() for part in text.split(separator) if part.strip()]
        try:
            value = json.loads(text)
        except ValueError:
            raise UserError(
                f"{where}: {text[:80]!r} is no JSON list: write names with {separator!r} between "
                f"them, or a list such as {json.dumps(['one', 'two'])}"
            ) from None
    return [*value] if isinstance(value, list | tuple) else [*names(where, value)]


def _are_indicators(rows: Sequence[tuple[str, list[Any]]]) -> bool:
    """Return whether every row has as many zeros and ones, two at least, that cannot be names: they
    are numbers or truth values, or some row repeats one."""
    lengths = {len(row) for _, row in rows}
    if len(lengths) != 1 or max(lengths) < 2:
        return False
    flat = [value for _, row in rows for value in row]
    if not all(_bit(value) is not None for value in flat):
        return False
    spelled = any(isinstance(value, str) for value in flat)
    return not spelled or any(len(set(row)) < len(row) for _, row in rows)


def _bit(value: Any) -> bool | None:
    """Return an entry of an indicator vector; None for anything else."""
    if isinstance(value, str):
        return {"0": False, "1": True}.get(value)
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    return None


def _indicated(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(index) for index, value in enumerate(row) if _bit(value))


def _shown(value: Any) -> str:
    """Return a value as a file spells it, shortened."""
    if isinstance(value, str):
        return quoted(value)
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else f"{text[:80]}..."
