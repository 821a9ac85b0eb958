"""Discourse relation: which connective joined two sentences? (Sun et al. 2019b, section 4.2.3)."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly, ConnectedPair
from bertwright.examples.assembly.connectives import ENGLISH, Connectives
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.questions import Question

from .class_question import RowQuestion
from .objective import Asking


class DiscourseRelation(RowQuestion):
    """Ask the first place of a row which of ``connectives`` stood between its two sentences, as
    mined by Sileo et al. (2019). It is asked of rows of its own, those of ``connected-pair``.

    A connective is taken away as it is written here, so one that a comma follows is listed with it;
    text in another language needs a list of its own. The list of the paper has 174; the default has
    20 English ones.
    """

    kind: Literal["discourse-relation"] = "discourse-relation"
    connectives: Connectives = ENGLISH

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"connectives"})

    @property
    def own_rows(self) -> Assembly:
        return ConnectedPair(connectives=self.connectives)

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        connective = rows.coordinates.connective
        if connective is None:
            raise UserError("objectives.discourse-relation needs rows of connected-pair")
        which = connective.max(axis=1).astype(np.int64)
        where = rows.pieces.shape[1] * np.arange(len(which), dtype=np.int64)
        weight = (which >= 0).astype(np.float32)
        return rows, Question(where, np.maximum(which, 0), weight)

    def num_choices(self, vocabulary_size: int) -> int:
        return len(self.connectives)

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return self.connectives[choice]
