"""Permutation language modelling: predict in another order (Yang et al. 2019, section 2.2)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertwright.encoder.visibility import InOrder, Visibility
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.permutation import permute, random_order
from bertwright.examples.questions import Question
from bertwright.examples.selection import Chosen, Selection, Spans
from bertwright.examples.vocabulary import Vocabulary
from bertwright.schedules import Constant

from .objective import Asked, Asking, Objective


class Permutation(Objective):
    """Ask for the last places of a random order, each seen by what comes before it in that order.

    ``selection`` chooses the places that are predicted. Every one of them has a second place behind
    the text which asks for it: the second of the two streams of the paper is those places, in the
    same pass through the same blocks.
    """

    kind: Literal["permutation"] = "permutation"
    selection: Selection = Spans(rate=Constant(value=1 / 6), law="harmonic", longest=5, of="pieces")

    names_pieces: ClassVar[bool] = True
    hides: ClassVar[bool] = True

    @property
    def added_places(self) -> float:
        return self.selection.rate.at(0.5)

    def per_place(self, length: int) -> float:
        return self.selection.rate.at(0.5)

    def read_places(self, length: int, together: Mapping[str, Objective]) -> float:
        return self.per_place(length)

    @property
    def visibility(self) -> Visibility:
        return InOrder()

    @property
    def needs(self) -> frozenset[Need]:
        return self.selection.needs

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        return "lays places behind the text: list it before all others" if before else None

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        draw = asking.draw.named("permutation")
        chosen = self.selection.select(
            rows, asking.vocabulary, draw.named("selection"), asking.progress
        )
        return permute(rows, chosen, random_order(rows, chosen, draw.named("order")))

    def places(self, asked: Asked) -> Tensor:
        return asked.where

    def ask_for(
        self, chosen: Chosen, hidden: NDArray[np.bool_], rows: Rows, vocabulary: Vocabulary
    ) -> tuple[Rows, Question]:
        """By an order in which all hidden places come last, and at once."""
        return permute(rows, chosen, hidden.astype(np.int32))
