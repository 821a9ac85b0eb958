"""Capitalisation: does this word begin with a capital letter? (Sun et al. 2019b, 4.2.1)."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from bertwright.errors import UserError
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.questions import Question

from .class_question import ClassQuestion
from .objective import Asking


class Capitalised(ClassQuestion):
    """Ask the first piece of every word whether it had a capital letter, which a lower-cased
    vocabulary does not show."""

    kind: Literal["capitalised"] = "capitalised"

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"capitals"})

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        capital, word = rows.coordinates.capital, rows.coordinates.word
        if capital is None or word is None:
            raise UserError(
                "objectives.capitalised needs text whose capitals are known: prepare it with "
                "--capitals"
            )
        begins = np.ones(word.shape, np.bool_)
        begins[:, 1:] = word[:, 1:] != word[:, :-1]
        begins &= (word >= 0) & (capital >= 0) & ~rows.special
        where = np.arange(word.size, dtype=np.int64)
        target = np.maximum(capital, 0).ravel().astype(np.int64)
        return rows, Question(where, target, begins.ravel().astype(np.float32))

    def num_choices(self, vocabulary_size: int) -> int:
        return 2

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return ("small", "capital")[choice]
