"""Compilation of functions, with a check of the first results against the eager function.

Each class of shapes is compared once. A function that is compiled wrongly stays eager.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from bertwright.core.cache_folder import read_cache, update_cache
from bertwright.core.messages import first_line, print_once
from bertwright.runtime.compiled_functions import clone_tensors, iterate_tensors, max_relative_error
from bertwright.runtime.compiler import (
    compilation_obstacle,
    compiler_version,
    configure_compiler,
    toolchain_hash,
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

TOLERANCES = {torch.bfloat16: 0.02, torch.float16: 5e-3}
"""Maximum relative error by dtype; ``TOLERANCE`` for all others."""

TOLERANCE = 1e-3

CACHE_FILE = "miscompiled_functions.json"


def compile_checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that is compiled on its first call, with dynamic shapes.

    It stays eager if it cannot be compiled or if the compiled results differ.
    """
    checked_shapes: set[tuple[object, ...]] = set()
    rejected = False

    @cache
    def compiled() -> Callable[Arguments, Result]:
        configure_compiler()
        return torch.compile(function, dynamic=True)

    def reject(reason: str) -> None:
        nonlocal rejected
        rejected = True
        print_once(f"kernels are not compiled: {reason}")

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if rejected:
            return function(*args, **kwargs)
        shapes = _shape_class(*args, *kwargs.values())
        if shapes in checked_shapes:
            return compiled()(*args, **kwargs)
        if (obstacle := compilation_obstacle()) is not None:
            reject(obstacle)
            return function(*args, **kwargs)
        copied_args, copied_kwargs = clone_tensors((args, kwargs))
        expected = function(*args, **kwargs)
        name = toolchain_hash(function.__module__, function.__qualname__, str(shapes))
        difference = read_cache(CACHE_FILE).get(name)
        if difference is not None:
            reject(f"{function.__name__}: {difference}")
            return expected
        try:
            call = cast(Callable[..., Result], compiled())
            result = call(*copied_args, **copied_kwargs)
        except Exception as error:
            reject(first_line(error))
            return expected
        difference = _difference(result, expected)
        if difference is None:
            checked_shapes.add(shapes)
            return result
        update_cache(CACHE_FILE, {name: difference})
        reject(f"{function.__name__}: {difference}")
        return expected

    return run


def tolerance_for(dtype: torch.dtype) -> float:
    """Return the maximum allowed relative error of a kernel's result."""
    return TOLERANCES.get(dtype, TOLERANCE)


def _difference(value: Any, expected: Any) -> str | None:
    """Return a message if a compiled result differs from the expected one; None if it agrees."""
    error = max_relative_error(value, expected)
    tolerances = [tolerance_for(tensor.dtype) for tensor in iterate_tensors(expected)]
    if error <= max(tolerances, default=TOLERANCE):
        return None
    return f"{compiler_version()} miscompiles it, its result is off by {error:.1%}"


def _shape_class(*values: Any) -> tuple[object, ...]:
    """Return the same key for arguments that share a graph; sizes 0 and 1 are specialised."""
    return tuple(
        [
            (value.dtype, value.device, *[size < 2 for size in value.shape])
            if isinstance(value, Tensor)
            else value
            for value in values
        ]
    )
