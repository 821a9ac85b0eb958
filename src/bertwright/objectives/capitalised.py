"""Capitalisation: does this word begin with a capital letter? (Sun et al. 2019b, 4.2.1)."""

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from bertwright.errors import UserError
from bertwright.examples.coordinates import Need, Rows
from bertwright.examples.questions import Question

from .objective import Asked, Asking, Host, Loss, Objective, Reading
from .sentence_relation import class_loss


class Capitalised(Objective):
    """Ask the first piece of every word whether it had a capital letter, which a lower-cased
    vocabulary does not show."""

    kind: Literal["capitalised"] = "capitalised"

    needs: ClassVar[frozenset[Need]] = frozenset({"capitals"})

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        capital, word = rows.coordinates.capital, rows.coordinates.word
        if capital is None or word is None:
            raise UserError(
                "objectives.capitalised needs text whose capitals are known: prepare it with "
                "--capitals"
            )
        begins = np.ones(word.shape, np.bool_)
        begins[:, 1:] = word[:, 1:] != word[:, :-1]
        begins &= (word >= 0) & ~rows.special
        where = np.arange(word.size, dtype=np.int64)
        weight = begins.ravel().astype(np.float32)
        return rows, Question(where, capital.ravel().astype(np.int64), weight)

    def head(self, host: Host) -> nn.Module:
        return nn.Linear(host.choice.width, 2)

    def num_choices(self, vocabulary_size: int) -> int:
        return 2

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return class_loss(self.logits(asked, reading, head), asked)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert head is not None, "it has a head"
        return head(reading.at(asked.where)).float()

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return ("small", "capital")[choice]
