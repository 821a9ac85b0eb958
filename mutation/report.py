"""Tables of the fraction of mutants that the tests notice."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mutation.trials import Outcome, Trial

OUTCOMES: tuple[Outcome, ...] = ("killed", "timeout", "survived", "not covered")
DETECTED = ("killed", "timeout")


def wilson_interval(num_successes: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a fraction (Wilson 1927)."""
    if not number:
        return 0.0, 1.0
    fraction = num_successes / number
    centre = fraction + z**2 / (2 * number)
    width = z * math.sqrt(fraction * (1 - fraction) / number + z**2 / (4 * number**2))
    return (centre - width) / (1 + z**2 / number), (centre + width) / (1 + z**2 / number)


def summary(trials: Sequence[Trial], num_mutants: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a line for each package."""
    lines: list[dict[str, Any]] = []
    for name, number in num_mutants.items():
        of_package = [t for t in trials if t.mutant.package == name]
        counts = {o: sum(t.outcome == o for t in of_package) for o in OUTCOMES}
        detected = sum(counts[outcome] for outcome in DETECTED)
        low, high = wilson_interval(detected, len(of_package))
        lines.append(
            {
                "package": name,
                "mutants": number,
                "sampled": len(of_package),
                **counts,
                "detected": f"{detected / max(len(of_package), 1):.1%}",
                "interval": f"{low:.1%} to {high:.1%}",
            }
        )
    return lines


COLUMNS = {
    "package": "package",
    "mutants": "mutants",
    "sampled": "sampled",
    **{outcome: outcome for outcome in OUTCOMES},
    "detected": "killed or timeout",
    "interval": "95 % interval",
}


def survivors(trials: Iterable[Trial], lines_of: Mapping[Trial, tuple[str, str]]) -> list[str]:
    """Return a line for every mutant that was not noticed."""
    return [
        f"{t.mutant.path}:{t.mutant.start[0]} ({t.mutant.operator}, {t.outcome}): "
        f"`{lines_of[t][0]}` -> `{lines_of[t][1]}`"
        for t in sorted(trials, key=lambda t: (t.mutant.path, t.mutant.start))
        if t.outcome not in DETECTED
    ]
