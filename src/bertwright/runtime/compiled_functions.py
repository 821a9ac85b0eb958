"""Functions with an optional compiled form, and their numerical error."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from bertwright.runtime.compiler import configure_compiler

if TYPE_CHECKING:
    import torch

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class CompilableFunction(Generic[Parameters, Result]):
    """A function that runs eagerly until :meth:`compile` is called.

    ``definition`` is the function to compile. ``eager`` is an equivalent that is faster without
    compilation, by default the same function. ``dynamic`` compiles one graph for all shapes.
    """

    def __init__(
        self,
        definition: Callable[Parameters, Result],
        eager: Callable[Parameters, Result] | None = None,
        dynamic: bool = True,
    ) -> None:
        self.name = definition.__name__
        self._definition, self._dynamic = definition, dynamic
        self._call = eager or definition
        self._errors: list[float] | None = None

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if self._errors is not None:
            return self._call_both(self._errors, *args, **kwargs)
        return self._call(*args, **kwargs)

    def compile(self) -> None:
        """Compile the function; later calls use the compiled form."""
        import torch

        configure_compiler()
        self._call = torch.compile(self._definition, dynamic=self._dynamic)

    @contextmanager
    def compare_with_eager(self) -> Generator[list[float]]:
        """Run every call both compiled and eagerly; yield the growing list of relative errors."""
        self._errors = []
        try:
            yield self._errors
        finally:
            self._errors = None

    def _call_both(
        self, errors: list[float], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        copied_args, copied_kwargs = clone_tensors((args, kwargs))
        call = cast(Callable[..., Result], self._call)
        compiled = call(*copied_args, **copied_kwargs)
        result = self._definition(*args, **kwargs)
        compared = (compiled, copied_args, copied_kwargs), (result, args, kwargs)
        errors.append(max_relative_error(*compared))
        return result


def clone_tensors(value: Any) -> Any:
    """Return a nested value with every tensor copied."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: clone_tensors(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        items = [clone_tensors(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def iterate_tensors(value: Any) -> "Iterator[torch.Tensor]":
    """Yield the tensors of a nested value."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from iterate_tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from iterate_tensors(item)


def max_relative_error(actual: Any, expected: Any) -> float:
    """Return the largest relative error over the tensors of a nested value.

    An error is relative to the expected element's magnitude plus the tensor's mean magnitude.
    Integers may be off by one. Elements that are not finite must be equal.
    """
    errors = [
        _relative_error(a, b)
        for a, b in zip(iterate_tensors(actual), iterate_tensors(expected), strict=True)
    ]
    return max(errors, default=0.0)


def _relative_error(actual: "torch.Tensor", expected: "torch.Tensor") -> float:
    exact, inexact = expected.detach().double(), actual.detach().double()
    error = (inexact - exact).abs().masked_fill(inexact == exact, 0.0)
    if not expected.is_floating_point():
        return float(error.gt(1).any())
    size = exact.abs()
    finite = size[size.isfinite()]
    mean = float(finite.mean()) if len(finite) else 0.0
    relative = error / (size + mean + 1e-30)
    return float(relative.nan_to_num(nan=float("inf")).amax()) if relative.numel() else 0.0
