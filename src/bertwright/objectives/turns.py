"""Which questions are asked together, and which take turns.

Questions that see the text differently cannot share a pass. Where objectives have a ``share``, each
step asks one of them, and beside it all that have none. The gradient is theirs in the proportion of
their shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.encoder.visibility import Visibility
from bertwright.objectives.objective import Objective, visibility_of
from bertwright.randomness import key, uniform


@dataclass(frozen=True)
class Turn:
    """What is asked together, by name, in this share of the steps."""

    share: float
    objectives: Mapping[str, Objective]

    @property
    def visibility(self) -> Visibility:
        """Who sees whom while it is asked; ValueError where its questions contradict each other."""
        return visibility_of(list(self.objectives.values()))


def turns_of(objectives: Mapping[str, Objective]) -> tuple[Turn, ...]:
    """The turns of a phase; one where nothing has a share."""
    shares = {name: o.share for name, o in objectives.items() if o.share is not None}
    if not shares:
        return (Turn(1.0, objectives),)
    total = sum(shares.values())
    return tuple(
        Turn(share / total, {n: o for n, o in objectives.items() if n == name or n not in shares})
        for name, share in shares.items()
    )


def turn_at(turns: Sequence[Turn], seed: int, step: int) -> Turn:
    """Whose turn a step is: a function of seed and step."""
    bounds = np.cumsum([turn.share for turn in turns])[:-1]
    return turns[int(np.searchsorted(bounds, uniform(key(seed, "turn"), step), side="right"))]
