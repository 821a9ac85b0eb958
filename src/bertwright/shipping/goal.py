"""What a model that is shipped must keep to: bytes, milliseconds, points of its score."""

import re
from dataclasses import dataclass

from bertwright.errors import UserError

_SIZE = re.compile(r"size<=(\d+(?:\.\d+)?)(KB|MB|GB)")
_LATENCY = re.compile(r"latency<=(\d+(?:\.\d+)?)ms@(\d+)x(\d+)")
_LOSS = re.compile(r"loss<=(\d+(?:\.\d+)?)")

BYTES = {"KB": 1e3, "MB": 1e6, "GB": 1e9}

MOST_PIECES = 65_536
"""Of all rows of an answer together, which is given many times by all that could be shipped."""

POINTS_EXACT = 1e-9
"""Two scores lie no nearer to each other, but as fractions that were rounded."""


@dataclass(frozen=True)
class Goal:
    """None where nothing is asked.

    Attributes:
        bytes: of the file that is computed with.
        milliseconds: of one answer, to ``rows`` rows of ``length`` pieces.
        points: hundredths of the score that may be lost.
        said: all of it, in the words of :meth:`of`.
    """

    bytes: float | None = None
    milliseconds: float | None = None
    rows: int = 1
    length: int = 64
    points: float | None = None
    said: str = ""

    @staticmethod
    def of(said: str) -> "Goal":
        """What ``size<=25MB, latency<=5ms@1x64, loss<=1.0`` says, or a part of it.

        Errors: UserError for what says something else, or something twice, or too much at once.
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
                    f"--goal {part!r}: say size<=25MB (or KB, GB), latency<=5ms@1x64 (rows x "
                    f"pieces), or loss<=1.0 (points), with commas between"
                )
            if own.keys() & found.keys():
                raise UserError(f"--goal {said!r} says {part.partition('<')[0]} twice")
            found |= own
        rows, length = found.get("rows", 1), found.get("length", 64)
        if rows < 1 or length < 3:
            raise UserError(f"--goal {said!r}: ask for one row at least, of three pieces at least")
        if rows * length > MOST_PIECES:
            raise UserError(
                f"--goal {said!r}: {rows:,} rows of {length:,} pieces are more than "
                f"{MOST_PIECES:,} pieces, which are timed at most: ask for fewer rows"
            )
        return Goal(**found, said=said)  # type: ignore[arg-type]

    def keeps(self, size: float, milliseconds: float | None) -> bool:
        """Whether something of so many bytes, that answers within so much time, is small and fast
        enough; None where that is not known, and not what is asked."""
        return not self.missed(size, milliseconds)

    def loses(self, points: float) -> bool:
        """Whether so many points may be lost."""
        return self.points is None or points <= self.points + POINTS_EXACT

    def missed(self, size: float, milliseconds: float | None, lost: float = 0.0) -> list[str]:
        """Which wishes something does not keep to that has so many bytes, answers within so much
        time and has lost so much of the score, from 0 to 1; each with what it came to, and by how
        much that is too much."""
        found = (
            _missed("size", 1e-6, " MB", size, self.bytes),
            _missed("latency", 1, " ms", milliseconds, self.milliseconds),
            _missed("loss", 1, " points", 100 * lost, self.points, POINTS_EXACT),
        )
        return [one for one in found if one is not None]


def _missed(
    name: str,
    scale: float,
    unit: str,
    found: float | None,
    asked: float | None,
    exact: float = 0.0,
) -> str | None:
    if asked is None or found is None or found <= asked + exact:
        return None
    wish, own, more = (f"{scale * of:.4g}{unit}" for of in (asked, found, found - asked))
    return f"{name}<={wish} is missed: it is {own}, {more} too much"
