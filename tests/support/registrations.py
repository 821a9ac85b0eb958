"""Kinds, tasks and plugins that end with a test."""

from collections.abc import Generator
from contextlib import contextmanager, suppress

from bertwright.core.registry import transaction


class _End(Exception):
    """Undoes the transaction."""


@contextmanager
def temporary_registrations() -> Generator[None]:
    """Undo what the block registers, as a process that ends does."""
    with suppress(_End), transaction():
        yield
        raise _End
