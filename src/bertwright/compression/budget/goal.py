"""The goal of a compression: size, latency and score."""

import re
from dataclasses import dataclass

from bertwright.core.errors import UserError

_SIZE = re.compile(r"size<=(\d+(?:\.\d+)?)(KB|MB|GB)")
_LATENCY = re.compile(r"latency<=(\d+(?:\.\d+)?)ms@(\d+)x(\d+)")
_LOSS = re.compile(r"loss<=(\d+(?:\.\d+)?)")

BYTE_UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9}

MAX_TOKENS = 65_536
"""Maximum number of tokens in a timed batch."""

POINT_TOLERANCE = 1e-9
"""Tolerance when comparing scores, which are rounded fractions."""


@dataclass(frozen=True)
class Goal:
    """A goal; limits that are not set are None.

    Attributes:
        max_bytes: size of the file with the weights.
        max_milliseconds: latency of a batch of ``batch_size`` sequences of ``sequence_length``
        tokens.
        max_lost_points: maximum loss of the score, in hundredths.
        text: the goal as it was parsed.
    """

    max_bytes: float | None = None
    max_milliseconds: float | None = None
    batch_size: int = 1
    sequence_length: int = 64
    max_lost_points: float | None = None
    text: str = ""

    @staticmethod
    def parse(text: str) -> "Goal":
        """Parse all or part of ``size<=25MB, latency<=5ms@1x64, loss<=1.0``.

        Raises UserError for other text, for a limit given twice or of 0, and for a batch that is
        too large.
        """
        limits: dict[str, float | int] = {}
        for part in text.replace(" ", "").split(","):
            if match := _SIZE.fullmatch(part):
                new: dict[str, float | int] = {"max_bytes": float(match[1]) * BYTE_UNITS[match[2]]}
            elif match := _LATENCY.fullmatch(part):
                new = {"max_milliseconds": float(match[1])}
                new |= {"batch_size": int(match[2]), "sequence_length": int(match[3])}
            elif match := _LOSS.fullmatch(part):
                new = {"max_lost_points": float(match[1])}
            else:
                raise UserError(
                    f"--goal {part!r}: write size<=25MB (or KB, GB), latency<=5ms@1x64 (batch size "
                    f"x sequence length), or loss<=1.0 (points), separated by commas"
                )
            if new.keys() & limits.keys():
                raise UserError(f"--goal {text!r} states {part.partition('<')[0]} twice")
            limits |= new
        if 0 in (limits.get("max_bytes"), limits.get("max_milliseconds")):
            raise UserError(f"--goal {text!r}: no model meets 0: choose a size or latency above 0")
        batch_size, length = limits.get("batch_size", 1), limits.get("sequence_length", 64)
        if batch_size < 1 or length < 3:
            raise UserError(
                f"--goal {text!r}: the batch needs at least 1 sequence of at least 3 tokens"
            )
        if batch_size * length > MAX_TOKENS:
            raise UserError(
                f"--goal {text!r}: {batch_size:,} sequences of {length:,} tokens exceed the "
                f"maximum of {MAX_TOKENS:,} tokens per timed batch: choose a smaller batch"
            )
        return Goal(**limits, text=text)  # type: ignore[arg-type]

    def is_met(self, num_bytes: float, milliseconds: float | None) -> bool:
        """Return True if size and latency meet the goal; an unknown latency counts as met."""
        return not self.unmet(num_bytes, milliseconds)

    def allows_loss(self, lost_points: float) -> bool:
        """Return True if the goal allows this loss in points."""
        return self.max_lost_points is None or lost_points <= self.max_lost_points + POINT_TOLERANCE

    def unmet(
        self, num_bytes: float, milliseconds: float | None, lost_score: float = 0.0
    ) -> list[str]:
        """Describe the limits that are not met.

        ``lost_score`` is a fraction from 0 to 1. Each description contains the value and the
        excess.
        """
        problems = (
            _describe_unmet("size", 1e-6, " MB", num_bytes, self.max_bytes),
            _describe_unmet("latency", 1, " ms", milliseconds, self.max_milliseconds),
            _describe_unmet(
                "loss", 1, " points", 100 * lost_score, self.max_lost_points, POINT_TOLERANCE
            ),
        )
        return [problem for problem in problems if problem is not None]


def _describe_unmet(
    name: str,
    scale: float,
    unit: str,
    value: float | None,
    limit: float | None,
    tolerance: float = 0.0,
) -> str | None:
    if limit is None or value is None or value <= limit + tolerance:
        return None
    maximum, actual, excess = (f"{scale * v:.4g}{unit}" for v in (limit, value, value - limit))
    return f"{name}<={maximum} is not met: it is {actual}, {excess} too much"
