"""What an input is, and a kind of inputs."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Case:
    """One input: ``what`` it is, for a report, and what is done with it.

    ``output`` is what must not be there where it ends in a sentence.
    """

    what: str
    run: Callable[[], object]
    output: Path | None = None


class Kind:
    """A source of inputs; ``weight`` is its share of them."""

    name: ClassVar[str]
    weight: ClassVar[float]

    def case(self, draw: random.Random) -> Case:
        """Return one of them."""
        raise NotImplementedError
