"""Objective schedule: which objectives share a step, and which alternate.

Objectives with different attention masks cannot share a pass. If objectives have a ``fraction``,
each step trains one of them, together with all objectives without one. So the fractions weight
their gradients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.core.rng import stream_key, uniform
from bertwright.modules.attention.mask import Visibility
from bertwright.objectives.objective import Objective, combined_visibility


@dataclass(frozen=True)
class ObjectiveGroup:
    """A group of objectives by name that share a step, in a ``fraction`` of the steps."""

    fraction: float
    objectives: Mapping[str, Objective]

    @property
    def visibility(self) -> Visibility:
        """Return the common attention rule; ValueError if the objectives conflict."""
        return combined_visibility(list(self.objectives.values()))


def objective_schedule(objectives: Mapping[str, Objective]) -> tuple[ObjectiveGroup, ...]:
    """Return the groups of a phase; a single one if no objective has a fraction."""
    fractions = {name: o.fraction for name, o in objectives.items() if o.fraction is not None}
    if not fractions:
        return (ObjectiveGroup(1.0, objectives),)
    total = sum(fractions.values())
    return tuple(
        ObjectiveGroup(
            fraction / total,
            {n: o for n, o in objectives.items() if n == name or n not in fractions},
        )
        for name, fraction in fractions.items()
    )


def group_at_step(groups: Sequence[ObjectiveGroup], seed: int, step: int) -> ObjectiveGroup:
    """Draw the group of a step, given the seed and the step."""
    bounds = np.cumsum([group.fraction for group in groups])[:-1]
    return groups[
        int(np.searchsorted(bounds, uniform(stream_key(seed, "turn"), step), side="right"))
    ]
