"""Batches: rows of a source, and every question that a step asks of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.assembly import RowSource
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.questions import Question
from bertwright.examples.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What one process needs for one forward pass.

    - ``pieces``: (B, L) int32, as the encoder sees them
    - ``questions``: by the name of the objective that asks
    - ``num_tokens``: real places, special tokens included
    - ``first_row``: where row 0 stands in the global batch
    - ``continues``: whether every row goes on where that of the batch before it ended
    - ``beside``: the same text as another network reads it; None where none does
    """

    pieces: NDArray[np.int32]
    coordinates: Coordinates
    questions: dict[str, Question]
    num_tokens: int
    first_row: int = 0
    continues: bool = False
    beside: "Batch | None" = None

    def hidden(self, name: str) -> tuple[float, float]:
        """How many real places a question hides, and of how many."""
        question = self.questions[name]
        if question.hidden is not None:
            return question.hidden
        return float(question.weight.sum()), float(self.num_tokens)


class Ask(Protocol):
    """An objective's side of a batch: what it hides in the rows, and what it asks."""

    def __call__(
        self,
        rows: Rows,
        epoch: NDArray[np.int64],
        index: NDArray[np.int64],
        before: Mapping[str, Question],
    ) -> tuple[Rows, Question]:
        """The rows to show, and the question, given those that were asked before it."""
        ...


def make_batch(
    source: RowSource,
    index: NDArray[np.int64],
    epoch: NDArray[np.int64],
    ask: Mapping[str, Ask],
    first_row: int = 0,
    continues: bool = False,
    vocabulary: Vocabulary | None = None,
) -> Batch:
    """Sequences ``index`` (B,) of a source, each as its ``epoch`` (B,) has it, and the targets.

    Objectives mask in order, and each sees the sequences as the one before has left them. None
    masks or predicts a token that is reserved in the ``vocabulary``.
    """
    rows = source.rows(index, epoch)
    if vocabulary is not None and vocabulary.reserved:
        rows = replace(rows, special=rows.special | vocabulary.is_reserved[rows.pieces])
    questions: dict[str, Question] = {}
    for name, asker in ask.items():
        rows, questions[name] = asker(rows, epoch, index, questions)
    number = int(rows.real.sum())
    return Batch(rows.pieces, rows.coordinates, questions, number, first_row, continues)
