"""Sentence reordering: in which order do the parts of a text stand? (Sun et al. 2019b, 4.2.2)."""

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field

from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.examples.reordering import num_orders, reorder

from .class_question import RowQuestion
from .objective import Asking, Objective


class Reordering(RowQuestion):
    """Cut the first text of a row into 1 to ``parts`` parts, permute them, and ask for the order:
    one of 1! + 2! + ... classes. It must stand before what hides pieces."""

    kind: Literal["reordering"] = "reordering"
    parts: int = Field(default=3, ge=2, le=5)

    @property
    def rearranges(self) -> bool:
        return True

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        return "must be the first of the objectives" if before else None

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return reorder(rows, self.parts, asking.draw.named("reordering"))

    def num_choices(self, vocabulary_size: int) -> int:
        return num_orders(self.parts)

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return f"order {choice}"
