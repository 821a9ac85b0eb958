"""The result of a check: severity, message and advice."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["ok", "note", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
"""In ascending order.

A *note* is worth knowing, a *warning* is a likely cause of a bad result, an *error* makes the
result wrong or the training fail.
"""


@dataclass(frozen=True)
class Diagnostic:
    """The result of one check.

    Attributes:
        check: name of the check, ``group.name``.
        message: what was measured.
        advice: what to do; dropped if the severity is ok.
        metrics: the measured numbers by name.
    """

    check: str
    severity: Severity
    message: str
    advice: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        if self.severity == "ok":
            object.__setattr__(self, "advice", "")

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnostic as a dictionary."""
        return asdict(self)


def worst_severity(diagnostics: Iterable[Diagnostic]) -> Severity:
    """Return the worst severity; ok if there are no diagnostics."""
    return SEVERITIES[max((SEVERITIES.index(d.severity) for d in diagnostics), default=0)]


def grade(
    value: float,
    *,
    note: float = float("inf"),
    warning: float = float("inf"),
    error: float = float("inf"),
) -> Severity:
    """Return the severity of a value; each threshold is the lowest value of its severity."""
    bounds = (min(note, warning, error), min(warning, error), error)
    return SEVERITIES[sum(value >= bound for bound in bounds)]


def merge_phases(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Merge the diagnostics of each check over phases: keep all that are not ok, else the first."""
    by_check: dict[str, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        by_check.setdefault(diagnostic.check, []).append(diagnostic)
    merged: list[Diagnostic] = []
    for group in by_check.values():
        merged += [d for d in group if d.severity != "ok"] or group[:1]
    return merged
