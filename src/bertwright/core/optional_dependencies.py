"""Checks for libraries of optional extras."""

from importlib.util import find_spec

from bertwright.core.errors import MissingExtra


def require_library(library: str, extra: str) -> None:
    """Raise MissingExtra if a library is not installed."""
    if find_spec(library.replace("-", "_")) is None:
        raise MissingExtra(library, extra)
