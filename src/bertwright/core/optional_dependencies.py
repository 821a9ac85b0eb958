"""Checks for libraries of optional extras."""

from importlib.util import find_spec

from bertwright.core.errors import MissingExtra


def is_installed(library: str) -> bool:
    """Return whether a library can be imported."""
    return find_spec(library.replace("-", "_")) is not None


def require_library(library: str, extra: str) -> None:
    """Raise MissingExtra if a library is not installed."""
    if not is_installed(library):
        raise MissingExtra(library, extra)
