"""Baselines in the folder of a model: plain data in JSON, arrays in safetensors."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bertwright.core.errors import UserError
from bertwright.core.files import read_text, write_text
from bertwright.tasks.baselines.baseline import TaskBaseline
from bertwright.tasks.baselines.frequency import (
    ConstantBaseline,
    CopyBaseline,
    NeighbourHeadBaseline,
    WordTagBaseline,
)
from bertwright.tasks.baselines.linear import FeatureLinearBaseline
from bertwright.tasks.baselines.tf_idf import (
    SlidingWindowBaseline,
    TfIdfCosineBaseline,
    TfIdfFeatures,
    TfIdfLinearBaseline,
)

BASELINE_TYPES: dict[str, type[TaskBaseline]] = {
    baseline.kind: baseline
    for baseline in (
        ConstantBaseline,
        WordTagBaseline,
        CopyBaseline,
        NeighbourHeadBaseline,
        TfIdfLinearBaseline,
        TfIdfCosineBaseline,
        SlidingWindowBaseline,
        FeatureLinearBaseline,
    )
}
"""Baseline classes by their kind in a folder."""

BASELINES_FILE, ARRAYS_FILE = "baselines.json", "baselines.safetensors"


def save_baselines(folder: Path, baselines: Sequence[TaskBaseline]) -> None:
    """Save the baselines of a model, for comparisons on other examples."""
    from safetensors.numpy import save_file

    arrays: dict[str, Any] = {}
    records = [
        {"kind": baseline.kind, **_to_plain(baseline, f"{index}", arrays)}
        for index, baseline in enumerate(baselines)
    ]
    if arrays:
        save_file(arrays, str(folder / ARRAYS_FILE))
    write_text(folder / BASELINES_FILE, json.dumps(records, ensure_ascii=False) + "\n")


def load_baselines(folder: Path) -> list[TaskBaseline] | None:
    """Load the baselines of a model folder; None if it has none.

    Errors: UserError for damaged files.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not (folder / BASELINES_FILE).is_file():
        return None
    try:
        records: Any = json.loads(read_text(folder / BASELINES_FILE))
        arrays = load_file(str(folder / ARRAYS_FILE)) if (folder / ARRAYS_FILE).is_file() else {}
        return [_from_plain(record, f"{n}", arrays) for n, record in enumerate(records)]
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(
            f"{folder / BASELINES_FILE} is damaged ({error}): remove it to evaluate without "
            f"baselines"
        ) from error


def _to_plain(record: Any, path: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass as plain data; arrays are stored under their path."""
    plain: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            arrays[f"{path}.{field.name}"] = np.ascontiguousarray(value, np.float32)
        elif isinstance(value, TfIdfFeatures):
            plain[field.name] = _to_plain(value, f"{path}.{field.name}", arrays)
        else:
            plain[field.name] = value
    return plain


def _from_plain(record: dict[str, Any], path: str, arrays: dict[str, Any]) -> TaskBaseline:
    values = {**record, **_field_arrays(path, arrays)}
    baseline_type = BASELINE_TYPES[values.pop("kind")]
    if "features" in values:
        nested = _field_arrays(f"{path}.features", arrays)
        values["features"] = TfIdfFeatures(**{**values["features"], **nested})
    return baseline_type(**values)


def _field_arrays(path: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of one dataclass by field."""
    prefix = f"{path}."
    by_field = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    return {name: array for name, array in by_field.items() if "." not in name}
