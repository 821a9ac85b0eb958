"""Functions that have a compiled form, and how far what they compute is from what is right."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from bertwright.machine.compiler import tune_compiler

if TYPE_CHECKING:
    import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Compilable(Generic[Arguments, Result]):
    """A function that is called as it is until :meth:`compile`, and compiled from then on.

    ``definition`` is what is compiled; ``plain``, by default the same, computes the same faster
    where nothing is. ``dynamic`` makes one graph for all shapes.
    """

    def __init__(
        self,
        definition: Callable[Arguments, Result],
        plain: Callable[Arguments, Result] | None = None,
        dynamic: bool = True,
    ) -> None:
        self.name = definition.__name__
        self._definition, self._dynamic = definition, dynamic
        self._call = plain or definition
        self._errors: list[float] | None = None

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if self._errors is not None:
            return self._compared(self._errors, *args, **kwargs)
        return self._call(*args, **kwargs)

    def compile(self) -> None:
        """Call the compiled form from now on."""
        import torch

        tune_compiler()
        self._call = torch.compile(self._definition, dynamic=self._dynamic)

    @contextmanager
    def comparing(self) -> Generator[list[float]]:
        """Compute every call both ways; yield the list of their differences, which grows."""
        self._errors = []
        try:
            yield self._errors
        finally:
            self._errors = None

    def _compared(
        self, errors: list[float], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        copied_args, copied_kwargs = copy_tensors((args, kwargs))
        call = cast(Callable[..., Result], self._call)
        compiled = call(*copied_args, **copied_kwargs)
        result = self._definition(*args, **kwargs)
        compared = (compiled, copied_args, copied_kwargs), (result, args, kwargs)
        errors.append(largest_error(*compared))
        return result


def copy_tensors(value: Any) -> Any:
    """Return a nested value with every tensor copied."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: copy_tensors(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        items = [copy_tensors(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def tensors_in(value: Any) -> "Iterator[torch.Tensor]":
    """Yield the tensors of a nested value."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)


def largest_error(value: Any, right: Any) -> float:
    """Return the largest error of the tensors of a nested value, each relative to the size of what
    is right and to the mean size of its tensor; integers may be off by one.

    An element that is not finite is only right where the other is the same.
    """
    errors = [_error(a, b) for a, b in zip(tensors_in(value), tensors_in(right), strict=True)]
    return max(errors, default=0.0)


def _error(value: "torch.Tensor", right: "torch.Tensor") -> float:
    exact, inexact = right.detach().double(), value.detach().double()
    error = (inexact - exact).abs().masked_fill(inexact == exact, 0.0)
    if not right.is_floating_point():
        return float(error.gt(1).any())
    size = exact.abs()
    finite = size[size.isfinite()]
    mean = float(finite.mean()) if len(finite) else 0.0
    relative = error / (size + mean + 1e-30)
    return float(relative.nan_to_num(nan=float("inf")).amax()) if relative.numel() else 0.0
