"""Several steps over the same values as one compiled loop, where there is a compiler that gets it
right.

The first result of every class of shapes is compared with that of the function as it is written.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from bertwright.machine.cache import recall, remember
from bertwright.machine.compiled import copy_tensors, largest_error, tensors_in
from bertwright.machine.compiler import (
    compilation_obstacle,
    compiler_version,
    fingerprint,
    tune_compiler,
)
from bertwright.notices import first_line, say_once

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

TOLERANCES = {torch.bfloat16: 0.02, torch.float16: 5e-3}
"""By how much a result may be off in a precision; in others by ``TOLERANCE``."""

TOLERANCE = 1e-3

FILE = "miscompiled_functions.json"


def fused(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the function, compiled when it is first called, for any shapes; as it is where it
    cannot be compiled, or computes something else then."""
    agreeing: set[tuple[object, ...]] = set()
    rejected = False

    @cache
    def compiled() -> Callable[Arguments, Result]:
        tune_compiler()
        return torch.compile(function, dynamic=True)

    def reject(reason: str) -> None:
        nonlocal rejected
        rejected = True
        say_once(f"kernels are not compiled: {reason}")

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if rejected:
            return function(*args, **kwargs)
        shapes = _shapes_of(*args, *kwargs.values())
        if shapes in agreeing:
            return compiled()(*args, **kwargs)
        if (obstacle := compilation_obstacle()) is not None:
            reject(obstacle)
            return function(*args, **kwargs)
        copied_args, copied_kwargs = copy_tensors((args, kwargs))
        right = function(*args, **kwargs)
        name = fingerprint(function.__module__, function.__qualname__, str(shapes))
        difference = recall(FILE).get(name)
        if difference is not None:
            reject(f"{function.__name__}: {difference}")
            return right
        try:
            call = cast(Callable[..., Result], compiled())
            result = call(*copied_args, **copied_kwargs)
        except Exception as error:
            reject(first_line(error))
            return right
        difference = _difference(result, right)
        if difference is None:
            agreeing.add(shapes)
            return result
        remember(FILE, {name: difference})
        reject(f"{function.__name__}: {difference}")
        return right

    return run


def tolerance_for(dtype: torch.dtype) -> float:
    """Return by how much a result of a kernel may be off in a precision."""
    return TOLERANCES.get(dtype, TOLERANCE)


def _difference(value: Any, right: Any) -> str | None:
    """Return how a compiled result differs from what is right, None where it agrees."""
    error = largest_error(value, right)
    tolerances = [tolerance_for(tensor.dtype) for tensor in tensors_in(right)]
    if error <= max(tolerances, default=TOLERANCE):
        return None
    return f"{compiler_version()} miscompiles it, its result is off by {error:.1%}"


def _shapes_of(*values: Any) -> tuple[object, ...]:
    """Return the class of shapes of arguments, for which one graph serves: dimensions of less than
    two are graphs of their own."""
    return tuple(
        [
            (value.dtype, value.device, *[size < 2 for size in value.shape])
            if isinstance(value, Tensor)
            else value
            for value in values
        ]
    )
