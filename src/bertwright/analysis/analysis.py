"""The axis of analyses: one question asked of a model, how it is answered, and how the answer is
drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from matplotlib.figure import Figure

from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Found, Stored
from bertwright.analysis.listening import Listener, listen
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.axes import Choice


@dataclass(frozen=True)
class Case:
    """A model and texts.

    Attributes:
        seed: of everything that is drawn.
        cache: a folder where states are kept for other analyses; None keeps none.
        other: a model that this one is held against, for analyses of two.
    """

    subject: Subject
    texts: Sequence[ReadText]
    seed: int = 0
    cache: Path | None = None
    other: Subject | None = None


@dataclass(frozen=True)
class Shown:
    """A table of figures for a document: what it is of, its columns by key, and its rows."""

    heading: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, object]]


class Analysis(Choice):
    """The axis. ``number`` is that of the survey, ``group`` what it is called by together with
    others, ``source`` where it was published."""

    number: ClassVar[str]
    group: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str]
    sites: ClassVar[tuple[str, ...]] = ()
    """The values that it reads."""
    of_two: ClassVar[bool] = False
    """Whether its answer hangs on the model that this one is held against."""

    def about(self) -> dict[str, str]:
        """What it is."""
        return {
            "analysis": self.own_kind(),
            "id": self.number,
            "group": self.group,
            "question": self.question,
            "source": self.source,
        }

    def lacks(self, case: Case) -> str | None:
        """Why it says nothing of this model, in words."""
        return case.subject.lacks(*self.sites) if self.sites else None

    def run(self, case: Case) -> Found:
        """The answer."""
        raise TypeError(f"{type(self).__name__} is an axis, not an analysis")

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        """What was published of this question, and whether it is so here."""
        raise TypeError(f"{type(self).__name__} is an axis, not an analysis")

    def tables(self, stored: Stored) -> list[Shown]:
        """Figures that a document has beside the conclusions."""
        return []

    def draw(self, stored: Stored, figure: Figure) -> None:
        """The answer as a picture."""
        raise TypeError(f"{type(self).__name__} is an axis, not an analysis")


class Listening(Analysis):
    """What is answered by listening to a model that reads texts: all such share one pass."""

    def listener(self, case: Case) -> Listener:
        """What listens."""
        raise TypeError(f"{type(self).__name__} is an axis, not an analysis")

    def run(self, case: Case) -> Found:
        listener = self.listener(case)
        listen(case.subject, case.texts, [listener])
        return listener.found()
