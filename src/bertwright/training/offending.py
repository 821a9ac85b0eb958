"""A batch written down, for a person to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertwright.files import atomic_file


def save_arrays(file: Path, value: Any) -> None:
    """Save every array and number inside a value as safetensors, named by the way to it.

    Goes into dataclasses, objects with attributes, mappings and sequences.
    """
    found = dict(_arrays(value, ""))
    with atomic_file(file) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, temporary)


def _arrays(value: Any, path: str) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [(path, value.detach().cpu().clone())]
    if isinstance(value, np.ndarray | int | float):
        return [(path, torch.from_numpy(np.array(value)))]
    return [
        pair
        for name, part in _parts(value)
        for pair in _arrays(part, f"{path}{'.' if path else ''}{name}")
    ]


def _parts(value: Any) -> list[tuple[str, Any]]:
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [(str(name), part) for name, part in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(str(number), part) for number, part in enumerate(value)]
    return list(getattr(value, "__dict__", {}).items())
