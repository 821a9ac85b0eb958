"""A random input and its source."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Case:
    """A random input, its description, and the call that uses it.

    ``output`` must not exist after a UserError.
    """

    description: str
    run: Callable[[], object]
    output: Path | None = None


class Kind:
    """A source of inputs; ``weight`` is its relative frequency."""

    name: ClassVar[str]
    weight: ClassVar[float]

    def case(self, rng: random.Random) -> Case:
        """Return a random input."""
        raise NotImplementedError
