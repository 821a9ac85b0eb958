"""Assertions of the checks, which fail with one sentence."""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

TOLERANCE = 1e-5
"""Maximum difference between two float32 computations of the same value."""


def require(condition: bool, sentence: str) -> None:
    """Raise AssertionError with this sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)


@contextmanager
def failing_with(subject: str) -> Generator[None]:
    """Turn any exception in the block into an AssertionError that names ``subject``."""
    try:
        yield
    except AssertionError as error:
        if str(error).startswith(subject):
            raise
        raise AssertionError(f"{subject}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{subject}: {type(error).__name__}: {error}") from error


def require_close(actual: Tensor, expected: Tensor, sentence: str, tolerance: float) -> None:
    """Raise AssertionError with the maximum difference unless two tensors are nearly equal."""
    require(actual.shape == expected.shape, f"{sentence}: its shape changes")
    if not torch.allclose(actual, expected, rtol=tolerance, atol=tolerance):
        difference = float((actual - expected).detach().abs().max())
        raise AssertionError(f"{sentence}: it differs by {difference:.2g}")


def require_same(actual: Any, expected: Any, sentence: str, tolerance: float) -> None:
    """Raise AssertionError with the first difference unless plain data are nearly equal."""
    if (difference := _first_difference(actual, expected, tolerance)) is not None:
        raise AssertionError(f"{sentence}: {difference}")


def _first_difference(actual: Any, expected: Any, tolerance: float) -> str | None:
    """Return where two values of plain data differ; None if they agree within the tolerance."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        ours, theirs = cast(Mapping[Any, Any], actual), cast(Mapping[Any, Any], expected)
        if ours.keys() != theirs.keys():
            return f"the keys {list(ours)} and {list(theirs)}"
        pairs = ((ours[key], theirs[key]) for key in ours)
    elif isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        first, second = cast(list[Any], actual), cast(list[Any], expected)
        if len(first) != len(second):
            return f"{len(first)} and {len(second)} values"
        pairs = zip(first, second, strict=True)
    elif isinstance(actual, float) and isinstance(expected, float):
        same = math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance)
        return None if same or actual is expected else f"{actual} and {expected}"
    else:
        return None if actual == expected else f"{actual!r} and {expected!r}"
    differences = (_first_difference(a, b, tolerance) for a, b in pairs)
    return next((difference for difference in differences if difference), None)
