"""What a row of compression is: a question, how it is answered at toy size, and what came of it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.analysis.planted.expecting import Expected
from bertwright.statistics import Estimate, estimate, paired
from bertwright.studies.compression_checks.ground import Ground


@dataclass(frozen=True)
class Measured:
    """A figure that was found again and again, ``over`` seeds or what else; ``others`` are those of
    a baseline under the same seeds.

    ``wanted`` is the side of the baseline on which the mean must lie, None where nothing is
    asserted: toys show that machinery and signs are right, and no more.
    """

    what: str
    values: Sequence[float]
    baseline: str = ""
    others: Sequence[float] = ()
    wanted: Literal["above", "below"] | None = None
    over: str = "seeds"

    @property
    def mean(self) -> Estimate:
        """With its interval."""
        return estimate(self.values)

    @property
    def lead(self) -> Estimate | None:
        """Over the baseline, pair by pair; None without one."""
        return paired(self.values, self.others) if self.baseline else None

    @property
    def seen(self) -> bool:
        """Whether the mean lies where it is wanted."""
        if self.wanted is None:
            return True
        assert self.lead is not None, "what is wanted is wanted of a lead"
        return self.lead.mean > 0 if self.wanted == "above" else self.lead.mean < 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        told: dict[str, Any] = {
            "what": self.what,
            "over": self.over,
            "values": list(self.values),
            "mean": self.mean.mean,
            "interval": self.mean.interval,
        }
        if self.lead is not None:
            told["baseline"] = {"name": self.baseline, "values": list(self.others)}
            told["lead"], told["interval_of_lead"] = self.lead.mean, self.lead.interval
            told["wanted"], told["seen"] = self.wanted, self.seen
        return told

    @staticmethod
    def of(told: Mapping[str, Any]) -> "Measured":
        """What :meth:`as_dict` has told."""
        baseline = told.get("baseline", {"name": "", "values": ()})
        return Measured(
            told["what"],
            told["values"],
            baseline["name"],
            baseline["values"],
            told.get("wanted"),
            told["over"],
        )

    def __str__(self) -> str:
        return f"{self.what}: {shown(self.mean)}{self._against()}"

    def _against(self) -> str:
        if self.lead is None:
            return ""
        asked = "" if self.wanted is None else f", {self.wanted} is wanted"
        return f"; less {self.baseline} {shown(self.lead, '+')}{asked}"


def shown(found: Estimate, sign: str = "") -> str:
    """A mean, with its interval where it has one."""
    mean = f"{found.mean:{sign}.4g}"
    if found.interval is None:
        return mean
    return f"{mean} [{found.low:{sign}.4g}, {found.high:{sign}.4g}]"


Came = Iterator[Expected | Measured]
"""What comes of a row: exact checks, and figures."""


@dataclass(frozen=True)
class Row:
    """A row of the survey of compression.

    Attributes:
        number: that of the survey, C1.
        source: where it was published.
        run: asks it, on the common ground.
        alone: whether it measures time, so that nothing may run beside it.
    """

    number: str
    name: str
    question: str
    source: str
    run: Callable[[Ground], Came]
    alone: bool = False


@dataclass(frozen=True)
class Checked:
    """What became of a row; ``failed`` says why it did not come to its end."""

    row: Row
    seconds: float
    checks: Sequence[Expected]
    figures: Sequence[Measured]
    quick: bool
    failed: str = ""

    @property
    def wrong(self) -> list[str]:
        """What is not as it should be. After few steps and seeds no figure is asked to be."""
        found = [self.failed] if self.failed else []
        found += [str(each) for each in self.checks if not each.holds]
        return found + [str(each) for each in self.figures if not (each.seen or self.quick)]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    def as_dict(self) -> dict[str, Any]:
        """Plain data; a bound that is infinite is None."""
        told: dict[str, Any] = {
            "id": self.row.number,
            "name": self.row.name,
            "question": self.row.question,
            "source": self.row.source,
            "ok": self.ok,
            "quick": self.quick,
            "seconds": self.seconds,
            "checks": [
                {
                    "what": each.what,
                    "found": each.found,
                    "low": each.low if math.isfinite(each.low) else None,
                    "high": each.high if math.isfinite(each.high) else None,
                    "ok": each.holds,
                }
                for each in self.checks
            ],
            "figures": [each.as_dict() for each in self.figures],
        }
        return told if self.ok else {**told, "wrong": self.wrong}

    @staticmethod
    def of(row: Row, told: Mapping[str, Any]) -> "Checked":
        """What :meth:`as_dict` has told of a row that came to its end."""
        checks = [
            Expected(
                each["what"],
                each["found"],
                -math.inf if each["low"] is None else each["low"],
                math.inf if each["high"] is None else each["high"],
            )
            for each in told["checks"]
        ]
        figures = [Measured.of(each) for each in told["figures"]]
        return Checked(row, told["seconds"], checks, figures, told["quick"])

    def __str__(self) -> str:
        name = f"{self.row.number:>5}  {self.row.name:24} {self.seconds:6.1f} s  "
        if not self.ok:
            return f"{name}MISS: {'; '.join(self.wrong)}"
        return f"{name}{len(self.checks)} checks hold, {len(self.figures)} figures"
