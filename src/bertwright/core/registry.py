"""Registries: objects by name, which plugins can extend.

A plugin is a module that registers objects when it is imported: a user's file, or an entry point of
an installed distribution in the group ``bertwright.plugins``.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar

from bertwright.core.errors import UserError

ENTRY_POINT_GROUP = "bertwright.plugins"

Value = TypeVar("Value")


class Registry(dict[str, Value]):
    """A dictionary of objects by name."""

    def register(self, name: str, value: Value, module: str = "") -> None:
        """Add or replace an object; ``module`` is the name of the module that defines it."""
        _registrations.append(_Registration(self, name, self.get(name), module))
        self[name] = value

    def find(self, name: Any) -> Value | None:
        """Return an object; None if neither this process nor an installed plugin registers it."""
        if name not in self:
            import_installed_plugins()
        return self.get(name)


class _Registration(NamedTuple):
    registry: Registry[Any]
    name: str
    previous: Any
    module: str


_registrations: list[_Registration] = []
"""All registrations of this process, in order."""


@contextmanager
def transaction() -> Generator[None]:
    """Undo the registrations of the block if it raises, except those of this package's modules.

    Modules that the block imported are removed from ``sys.modules``, so that another import
    registers them again.
    """
    start, modules = len(_registrations), {*sys.modules}
    try:
        yield
    except BaseException:
        registrations = _registrations[start:]
        del _registrations[start:]
        for registration in reversed(registrations):
            registry, name, previous, module = registration
            if module.partition(".")[0] == "bertwright":
                _registrations.append(registration)
                continue
            if module not in modules:
                sys.modules.pop(module, None)
            del registry[name]
            if previous is not None:
                registry[name] = previous
        raise


@cache
def import_installed_plugins() -> None:
    """Import the plugins of installed distributions, once.

    Errors: UserError for a module that cannot be imported; its registrations are undone.
    """
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            with transaction():
                entry_point.load()
        except Exception as error:
            distribution = "" if entry_point.dist is None else f" of {entry_point.dist.name}"
            reason = error if isinstance(error, UserError) else repr(error)
            raise UserError(
                f"the installed plugin {entry_point.value}{distribution} cannot be imported "
                f"({reason}): correct or uninstall it"
            ) from error
