"""What all objectives that hide pieces and ask for them have in common."""

from collections.abc import Mapping
from typing import ClassVar

from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.corruption import Corruption, Replace
from bertwright.examples.questions import Question, hide
from bertwright.examples.selection import Selection, Tokens

from .objective import Asking, Objective


class Hiding(Objective):
    """``selection`` says which places are hidden, ``corruption`` what is seen there instead."""

    selection: Selection = Tokens()
    corruption: Corruption = Replace()

    hides: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[Need]:
        return self.selection.needs

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        hiding = [name for name, objective in before.items() if objective.hides]
        if not hiding:
            return None
        return f"would ask for what {hiding[0]!r} shows: give each a share of the steps"

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return hide(
            rows,
            self.selection,
            self.corruption,
            asking.vocabulary,
            asking.draw.named(self.kind),  # type: ignore[attr-defined]
            asking.progress,
        )
