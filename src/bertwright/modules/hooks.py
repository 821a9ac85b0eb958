"""Hooks: intermediate values can be recorded or replaced by name.

Modules report values under names such as ``blocks.3.attention.weights``; users select them with
patterns such as ``blocks.*.attention.weights``. Without hooks, modules get None and do nothing. The
names are public API; docs/reference/hooks.md lists them.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import product
from threading import local

from torch import Tensor

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError

ReplaceFunction = Callable[[Tensor], Tensor]


class Taps:
    """The active hooks, by name pattern.

    Replacements run first, in the order in which they were added; recordings get the new value.
    """

    def __init__(self) -> None:
        self._tap_names: set[str] = set()
        self._has_ended = False
        self._recordings: list[tuple[str, dict[str, Tensor], bool]] = []
        self._replacements: list[tuple[str, ReplaceFunction]] = []

    @property
    def is_idle(self) -> bool:
        """Return whether there are no hooks."""
        return not self._recordings and not self._replacements

    @contextmanager
    def record(
        self, *patterns: str, output_gradients: bool = False
    ) -> Generator[dict[str, Tensor]]:
        """Collect the values whose names match, detached unless ``output_gradients`` is set.

        Errors: UserError at the end of the block for a pattern that matched no value in a complete
        pass.
        """
        values: dict[str, Tensor] = {}
        entries = [(pattern, values, output_gradients) for pattern in patterns]
        self._recordings += entries
        try:
            yield values
            self._check_patterns(*patterns)
        finally:
            # Compare by identity: equal recordings are distinct, and tensors compare elementwise.
            self._recordings = [entry for entry in self._recordings if entry[1] is not values]
            self._clear_if_idle()

    @contextmanager
    def replace(self, pattern: str, function: ReplaceFunction) -> Generator[None]:
        """Replace values whose names match with ``function(value)``; errors as in ``record``."""
        replacement = (pattern, function)
        self._replacements.append(replacement)
        try:
            yield
            self._check_patterns(pattern)
        finally:
            self._replacements = [r for r in self._replacements if r is not replacement]
            self._clear_if_idle()

    def is_requested(self, name: str) -> bool:
        """Return whether a hook matches a name."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns())

    def apply(self, name: str, value: Tensor) -> Tensor:
        """Pass a value through the hooks that match its name; return the result."""
        self._tap_names.add(name)
        for pattern, function in self._replacements:
            if fnmatchcase(name, pattern):
                value = function(value)
        for pattern, values, output_gradients in self._recordings:
            if fnmatchcase(name, pattern):
                values[name] = value if output_gradients else value.detach()
        return value

    def end_pass(self) -> None:
        """Mark the end of a forward pass; names that were not reported in it do not exist."""
        self._has_ended = True

    def patterns(self) -> list[str]:
        """Return the patterns of all hooks."""
        return [p for p, *_ in self._recordings] + [p for p, _ in self._replacements]

    def _check_patterns(self, *patterns: str) -> None:
        """Raise UserError for a pattern that matched nothing in a complete pass."""
        for pattern in patterns if self._has_ended else ():
            if not any(fnmatchcase(name, pattern) for name in self._tap_names):
                hint = did_you_mean(pattern, self._tap_names, ["those in docs/reference/hooks.md"])
                raise UserError(f"no value is named {pattern}{hint}")

    def _clear_if_idle(self) -> None:
        if self.is_idle:
            self._tap_names.clear()
            self._has_ended = False


class ThreadTaps(local):
    """The hooks of each thread, so that requests that share a model have separate hooks."""

    def __init__(self) -> None:
        self.current = Taps()

    def __reduce__(self) -> tuple[type["ThreadTaps"], tuple[()]]:
        return ThreadTaps, ()  # a copied model has no hooks


class HookPoint:
    """A point in the module tree that reports values under names with its prefix."""

    def __init__(self, taps: Taps, prefix: str = "") -> None:
        self._taps, self._prefix = taps, prefix

    def child(self, name: str) -> "HookPoint":
        """Return the hook point of a submodule."""
        return HookPoint(self._taps, f"{self._prefix}{name}.")

    def is_requested(self, *names: str) -> bool:
        """Return whether a hook matches one of the names."""
        return any(self._taps.is_requested(self._prefix + name) for name in names)

    def reject_missing(self, names: Iterable[str], reason: str) -> None:
        """Raise UserError if a pattern ends with one of these names, which the module lacks."""
        for name, pattern in product(names, self._taps.patterns()):
            full_name = self._prefix + name
            if pattern.rpartition(".")[2] == name and fnmatchcase(full_name, pattern):
                raise UserError(f"{pattern}: there is no {full_name}, {reason}")

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return self._taps.apply(self._prefix + name, value)


def tap(hooks: HookPoint | None, name: str, value: Tensor) -> Tensor:
    """Pass a value through the hooks, if there are any."""
    return value if hooks is None else hooks(name, value)


def child_hooks(hooks: HookPoint | None, name: str) -> HookPoint | None:
    """Return the hook point of a submodule; None if there are no hooks."""
    return None if hooks is None else hooks.child(name)
