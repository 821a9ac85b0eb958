"""What a check says: how bad it is, what was seen, what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["ok", "note", "warning", "error"]

VERDICTS: tuple[Verdict, ...] = ("ok", "note", "warning", "error")
"""From good to bad. A *note* is worth knowing, a *warning* is a likely cause of a bad result, an
*error* makes the result wrong or the training fail."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: its name, ``group.name``.
        seen: what was seen, with its number.
        advice: what to do, empty where there is nothing to do.
        figures: the numbers, by name.
    """

    check: str
    verdict: Verdict
    seen: str
    advice: str = ""
    figures: Mapping[str, float] = field(default_factory=dict[str, float])

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict; ok where there is none."""
    return VERDICTS[max((VERDICTS.index(f.verdict) for f in findings), default=0)]


def graded(
    value: float,
    *,
    note: float = float("inf"),
    warning: float = float("inf"),
    error: float = float("inf"),
) -> Verdict:
    """The verdict on a number of which less is better: bad from each bound on."""
    bounds = (min(note, warning, error), min(warning, error), error)
    return VERDICTS[sum(value >= bound for bound in bounds)]


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of one check in several phases: those that are not ok, or else the first."""
    by_check: dict[str, list[Finding]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, []).append(finding)
    result: list[Finding] = []
    for group in by_check.values():
        result += [f for f in group if f.verdict != "ok"] or group[:1]
    return result
