"""Several steps over the same values as one loop, where there is a compiler for it."""

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch

from bertwright.machine import of_the_compiler

Given = ParamSpec("Given")
Made = TypeVar("Made")


def fused(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, compiled when it is first called, for any shapes; as it is where nothing can
    be compiled."""
    failed = False

    @cache
    def compiled() -> Callable[Given, Made]:
        return torch.compile(function, dynamic=True)

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        nonlocal failed
        if not failed:
            try:
                return compiled()(*args, **kwargs)
            except Exception as error:
                if not of_the_compiler(error):
                    raise
                failed = True
        return function(*args, **kwargs)

    return run
