"""Parameters of tests: a few run always, the others with ``--full`` only."""

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def full_except(values: Iterable[Any], kept: Iterable[Any]) -> list[ParameterSet]:
    """Return parameters of which all but the kept ones are marked ``full``."""
    kept = list(kept)
    return [pytest.param(v, marks=() if v in kept else pytest.mark.full) for v in values]
