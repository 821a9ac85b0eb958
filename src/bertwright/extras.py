"""Libraries of extras are asked for before anything is done that would need them at its end."""

from importlib.util import find_spec

from bertwright.errors import MissingExtra


def require(library: str, extra: str) -> None:
    """Raise MissingExtra where a library is not installed."""
    if find_spec(library.replace("-", "_")) is None:
        raise MissingExtra(library, extra)
