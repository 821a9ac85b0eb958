"""Every intermediate value has a name, and can be read or replaced by it.

Modules offer their values under names such as ``blocks.3.attention.weights``; whoever wants them
asks with a pattern (``blocks.*.attention.weights``). When nobody listens, modules are handed None
and do nothing at all. The names are public API; docs/architecture.md has the table.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor

from bertwright.axes import did_you_mean
from bertwright.errors import UserError

Replacement = Callable[[Tensor], Tensor]


class Taps:
    """The patterns that someone listens to, and what happens to a value that matches.

    A value is first replaced, in the order in which the replacements were asked for, then
    recorded: a recording shows what everything downstream reads.
    """

    def __init__(self) -> None:
        self._offered: set[str] = set()
        self._complete = False
        self._recordings: list[tuple[str, dict[str, Tensor], bool]] = []
        self._replacements: list[tuple[str, Replacement]] = []

    @property
    def idle(self) -> bool:
        """Whether nobody listens."""
        return not self._recordings and not self._replacements

    @contextmanager
    def record(self, *patterns: str, gradients: bool = False) -> Generator[dict[str, Tensor]]:
        """Collect the values whose names match, detached unless ``gradients`` is set.

        Errors: UserError at the end for a pattern that fits no value of the passes till then.
        """
        values: dict[str, Tensor] = {}
        entries = [(pattern, values, gradients) for pattern in patterns]
        self._recordings += entries
        try:
            yield values
            self._require(*patterns)
        finally:
            # By what they are: two that want the same are equal, and tensors do not compare so.
            self._recordings = [own for own in self._recordings if own[1] is not values]
            self._forget()

    @contextmanager
    def replace(self, pattern: str, function: Replacement) -> Generator[None]:
        """Put ``function(value)`` in the place of every value whose name matches; errors as in
        ``record``."""
        entry = (pattern, function)
        self._replacements.append(entry)
        try:
            yield
            self._require(pattern)
        finally:
            self._replacements = [own for own in self._replacements if own is not entry]
            self._forget()

    def wants(self, name: str) -> bool:
        """Whether anyone listens to a name."""
        patterns = [p for p, *_ in self._recordings] + [p for p, _ in self._replacements]
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    def lacks(self, name: str, reason: str) -> None:
        """Refuse whoever asks for a name by its last part, where there is no such value."""
        last = name.rpartition(".")[2]
        for pattern in [p for p, *_ in self._recordings] + [p for p, _ in self._replacements]:
            if pattern.rpartition(".")[2] == last and fnmatchcase(name, pattern):
                raise UserError(f"{pattern}: there is no {name}, {reason}")

    def pass_by(self, name: str, value: Tensor) -> Tensor:
        """Offer a value under its name; use what comes back."""
        self._offered.add(name)
        for pattern, function in self._replacements:
            if fnmatchcase(name, pattern):
                value = function(value)
        for pattern, values, gradients in self._recordings:
            if fnmatchcase(name, pattern):
                values[name] = value if gradients else value.detach()
        return value

    def end(self) -> None:
        """Said where a pass is over: what has not come by till then is not there."""
        self._complete = True

    def _require(self, *patterns: str) -> None:
        """Refuse a pattern that nothing came by for, where a whole pass did."""
        for pattern in patterns if self._complete else ():
            if not any(fnmatchcase(name, pattern) for name in self._offered):
                near = did_you_mean(pattern, self._offered, ["those in docs/architecture.md"])
                raise UserError(f"no value is named {pattern}{near}")

    def _forget(self) -> None:
        if self.idle:
            self._offered.clear()
            self._complete = False


class Site:
    """A place in the model from which names are spelled: the taps and a prefix."""

    def __init__(self, taps: Taps, prefix: str = "") -> None:
        self._taps, self._prefix = taps, prefix

    def within(self, name: str) -> "Site":
        """The site of a part of this one."""
        return Site(self._taps, f"{self._prefix}{name}.")

    def wants(self, *names: str) -> bool:
        """Whether anyone listens to one of the names."""
        return any(self._taps.wants(self._prefix + name) for name in names)

    def lacks(self, names: Iterable[str], reason: str) -> None:
        """Refuse whoever asks for one of these names in particular."""
        for name in names:
            self._taps.lacks(self._prefix + name, reason)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return self._taps.pass_by(self._prefix + name, value)


def tap(site: Site | None, name: str, value: Tensor) -> Tensor:
    """Offer a value where someone may listen."""
    return value if site is None else site(name, value)


def inside(site: Site | None, name: str) -> Site | None:
    """The site of a part, or nothing where nobody listens."""
    return None if site is None else site.within(name)
