"""Registries: objects by name, which plugins extend.

A plugin is a module that registers when it is imported: a file of the user, or a module that an
installed distribution names as an entry point of the group ``bertwright.plugins``.
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
    """Objects by name."""

    def register(self, name: str, value: Value, module: str = "") -> None:
        """Add an object, in place of one of the same name; ``module`` defines its class."""
        _registrations.append(_Registration(self, name, self.get(name), module))
        self[name] = value

    def find(self, name: Any) -> Value | None:
        """Return an object, of an installed plugin if the name is new; None if there is none."""
        if name not in self:
            import_installed_plugins()
        return self.get(name)


class _Registration(NamedTuple):
    registry: Registry[Any]
    name: str
    previous: Any
    module: str


_registrations: list[_Registration] = []
"""Everything registered by this process, in order."""


@contextmanager
def transaction() -> Generator[None]:
    """Undo what the block has registered if it raises, but for modules of this package.

    Modules that the block has imported are forgotten, so that another import registers again.
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
    """Import the entry points of installed distributions once.

    Errors: UserError for a module that cannot be imported; it registers nothing.
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
