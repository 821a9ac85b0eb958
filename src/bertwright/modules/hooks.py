"""Hooks: every intermediate value has a name, by which it can be recorded or replaced.

Modules report values under names such as ``blocks.3.attention.weights``; users select them by a
pattern (``blocks.*.attention.weights``). Without hooks, modules get None and do nothing. The names
are public API; docs/reference/hooks.md lists them.
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

    Replacements run first, in the order they were added; recordings see the replaced value.
    """

    def __init__(self) -> None:
        self._tap_names: set[str] = set()
        self._has_ended = False
        self._recordings: list[tuple[str, dict[str, Tensor], bool]] = []
        self._replacements: list[tuple[str, ReplaceFunction]] = []

    @property
    def is_idle(self) -> bool:
        """Whether there are no hooks."""
        return not self._recordings and not self._replacements

    @contextmanager
    def record(
        self, *patterns: str, output_gradients: bool = False
    ) -> Generator[dict[str, Tensor]]:
        """Collect the values whose names match, detached unless ``output_gradients`` is set.

        Errors: UserError at the end for a pattern that matched no value of a finished pass.
        """
        values: dict[str, Tensor] = {}
        entries = [(pattern, values, output_gradients) for pattern in patterns]
        self._recordings += entries
        try:
            yield values
            self._check_patterns(*patterns)
        finally:
            # By identity: equal recordings are distinct, and tensors do not compare to a bool.
            self._recordings = [entry for entry in self._recordings if entry[1] is not values]
            self._clear_if_idle()

    @contextmanager
    def replace(self, pattern: str, function: ReplaceFunction) -> Generator[None]:
        """Replace values whose name matches by ``function(value)``; errors as in ``record``."""
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
        """Mark the end of a forward pass: names not reported by now do not exist."""
        self._has_ended = True

    def patterns(self) -> list[str]:
        """Return the patterns of all hooks."""
        return [p for p, *_ in self._recordings] + [p for p, _ in self._replacements]

    def _check_patterns(self, *patterns: str) -> None:
        """Raise UserError for a pattern that matched nothing in a whole pass."""
        for pattern in patterns if self._has_ended else ():
            if not any(fnmatchcase(name, pattern) for name in self._tap_names):
                hint = did_you_mean(pattern, self._tap_names, ["those in docs/reference/hooks.md"])
                raise UserError(f"no value is named {pattern}{hint}")

    def _clear_if_idle(self) -> None:
        if self.is_idle:
            self._tap_names.clear()
            self._has_ended = False


class ThreadTaps(local):
    """The hooks of each thread: requests that share a model do not see each other's."""

    def __init__(self) -> None:
        self.current = Taps()

    def __reduce__(self) -> tuple[type["ThreadTaps"], tuple[()]]:
        return ThreadTaps, ()  # a copied model has no hooks


class HookPoint:
    """A position in the module tree: reports values under the names with its prefix."""

    def __init__(self, taps: Taps, prefix: str = "") -> None:
        self._taps, self._prefix = taps, prefix

    def child(self, name: str) -> "HookPoint":
        """Return the hook point of a submodule."""
        return HookPoint(self._taps, f"{self._prefix}{name}.")

    def is_requested(self, *names: str) -> bool:
        """Return whether a hook matches one of the names."""
        return any(self._taps.is_requested(self._prefix + name) for name in names)

    def reject_missing(self, names: Iterable[str], reason: str) -> None:
        """Raise UserError if a hook names one of these values by its last part."""
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
    """Return the hook point of a submodule, if there are hooks."""
    return None if hooks is None else hooks.child(name)
