"""Baselines in the folder of a model: plain data in JSON, and arrays beside it."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from bertwright.errors import UserError
from bertwright.files import read_text, write_text
from bertwright.tasks.baselines.baseline import Baseline
from bertwright.tasks.baselines.frequencies import Constant, WordTags
from bertwright.tasks.baselines.vectors import VectorsLinear
from bertwright.tasks.baselines.words import TfIdf, WordsCosine, WordsLinear, WordsSpan

KINDS: dict[str, type[Baseline]] = {
    baseline.kind: baseline
    for baseline in (Constant, WordTags, WordsLinear, WordsCosine, WordsSpan, VectorsLinear)
}
"""Every kind of baseline by its name in a folder."""

FILE, ARRAYS = "baselines.json", "baselines.safetensors"


def save_baselines(folder: Path, baselines: Sequence[Baseline]) -> None:
    """Write the baselines that a model is to be compared with on other examples."""
    from safetensors.numpy import save_file

    arrays: dict[str, Any] = {}
    stated = [
        {"kind": baseline.kind, **_plain(baseline, f"{number}", arrays)}
        for number, baseline in enumerate(baselines)
    ]
    if arrays:
        save_file(arrays, str(folder / ARRAYS))
    write_text(folder / FILE, json.dumps(stated, ensure_ascii=False) + "\n")


def load_baselines(folder: Path) -> list[Baseline] | None:
    """Return the baselines of a model folder; None where it has none.

    Errors: UserError for files that are damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not (folder / FILE).is_file():
        return None
    try:
        stated: Any = json.loads(read_text(folder / FILE))
        arrays = load_file(str(folder / ARRAYS)) if (folder / ARRAYS).is_file() else {}
        return [_loaded(one, f"{number}", arrays) for number, one in enumerate(stated)]
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(
            f"{folder / FILE} is damaged ({error}): remove it to evaluate without baselines"
        ) from error


def _plain(of: Any, path: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass as plain data; arrays are named by their path."""
    plain: dict[str, Any] = {}
    for field in fields(of):
        value = getattr(of, field.name)
        if isinstance(value, np.ndarray):
            arrays[f"{path}.{field.name}"] = np.ascontiguousarray(value, np.float32)
        elif isinstance(value, TfIdf):
            plain[field.name] = _plain(value, f"{path}.{field.name}", arrays)
        else:
            plain[field.name] = value
    return plain


def _loaded(stated: dict[str, Any], path: str, arrays: dict[str, Any]) -> Baseline:
    values = {**stated, **_arrays(path, arrays)}
    kind = KINDS[values.pop("kind")]
    if "words" in values:
        within = f"{path}.words"
        values["words"] = TfIdf(**{**values["words"], **_arrays(within, arrays)})
    return kind(**values)


def _arrays(path: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return those of the fields of one dataclass, by field."""
    begin = f"{path}."
    named = {name.removeprefix(begin): value for name, value in arrays.items() if begin in name}
    return {
        name: value
        for name, value in named.items()
        if "." not in name and f"{begin}{name}" in arrays
    }
