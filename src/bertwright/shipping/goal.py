"""What a model that is shipped must keep to: bytes, milliseconds, points of its score."""

import re
from dataclasses import dataclass

from bertwright.errors import UserError

_SIZE = re.compile(r"size<=(\d+(?:\.\d+)?)(KB|MB|GB)")
_LATENCY = re.compile(r"latency<=(\d+(?:\.\d+)?)ms@(\d+)x(\d+)")
_LOSS = re.compile(r"loss<=(\d+(?:\.\d+)?)")

BYTES = {"KB": 1e3, "MB": 1e6, "GB": 1e9}


@dataclass(frozen=True)
class Goal:
    """None where nothing is asked.

    Attributes:
        bytes: of the file that is computed with.
        milliseconds: of one answer, to ``rows`` rows of ``length`` pieces.
        points: hundredths of the score that may be lost.
    """

    bytes: float | None = None
    milliseconds: float | None = None
    rows: int = 1
    length: int = 64
    points: float | None = None

    @staticmethod
    def of(said: str) -> "Goal":
        """What ``size<=25MB, latency<=5ms@1x64, loss<=1.0`` says, or a part of it.

        Errors: UserError for what says something else, or something twice.
        """
        found: dict[str, float | int] = {}
        for part in said.replace(" ", "").split(","):
            if match := _SIZE.fullmatch(part):
                own: dict[str, float | int] = {"bytes": float(match[1]) * BYTES[match[2]]}
            elif match := _LATENCY.fullmatch(part):
                own = {"milliseconds": float(match[1])}
                own |= {"rows": int(match[2]), "length": int(match[3])}
            elif match := _LOSS.fullmatch(part):
                own = {"points": float(match[1])}
            else:
                raise UserError(
                    f"--goal {part!r}: say size<=25MB, latency<=5ms@1x64 (rows x pieces), or "
                    f"loss<=1.0 (points), with commas between"
                )
            if twice := own.keys() & found.keys():
                raise UserError(f"--goal {said!r} says {', '.join(sorted(twice))} twice")
            found |= own
        if found.get("rows", 1) < 1 or found.get("length", 3) < 3:
            raise UserError(f"--goal {said!r}: a row has three pieces at least")
        return Goal(**found)  # type: ignore[arg-type]

    def keeps(self, size: float, milliseconds: float) -> bool:
        """Whether something of so many bytes, that answers within so much time, is small and fast
        enough."""
        small = self.bytes is None or size <= self.bytes
        return small and (self.milliseconds is None or milliseconds <= self.milliseconds)

    def allows(self, lost: float) -> bool:
        """Whether so much of the score, from 0 to 1, may be lost."""
        return self.points is None or 100 * lost <= self.points
