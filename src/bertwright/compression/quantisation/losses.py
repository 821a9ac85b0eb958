"""The loss of a fine-tuned model on examples of its task, item by item."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned, flat_places
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.parts import Part, target_type
from bertwright.tasks.task_batches import batched

Floats = NDArray[np.float64]


class Given(NamedTuple):
    """What a network is given: pieces (B, L) int64, where they stand, the flat places (M,) that are
    asked, None for whole rows, and how many answers each row has."""

    pieces: Tensor
    coordinates: Coordinates
    where: Tensor | None
    sizes: Sequence[int]


@dataclass(frozen=True)
class Asked:
    """Some items that a model is asked at once, and what is right."""

    model: FineTuned
    part: Part
    items: Sequence[int]

    def given(self) -> Given:
        """As its network is asked."""
        rows = [row for item in self.items for row in self._rows(item)]
        length = max(len(row.pieces) for row in rows)
        pieces, coordinates = batched(rows, length, self.model)
        places = self.part.task.answer.reads == "places"
        where = flat_places(rows, length).to(self.model.device) if places else None
        return Given(pieces, coordinates, where, [self._size(row) for row in rows])

    def num_rows(self) -> list[int]:
        """How many rows each item is read in."""
        return [len(self._rows(item)) for item in self.items]

    def losses(self) -> Iterator[tuple[Tensor, int]]:
        """The loss of each item, summed over its targets, and how many these are; of items that are
        compared with each other that of all.

        It is that of training, with nothing dropped out.
        """
        outputs = self.part.answering.as_trained(self.model.net(*self.given()))
        sizes = [sum(self._size(row) for row in self._rows(item)) for item in self.items]
        if self.part.task.answer.whole_steps:
            yield self._loss(outputs, sizes, self.items)
            return
        bounds = pairwise(accumulate(sizes, initial=0))
        for item, (start, end) in zip(self.items, bounds, strict=True):
            yield self._loss(outputs[start:end], [end - start], [item])

    def total(self) -> tuple[Tensor, int]:
        """The loss of all items together, 0-d, and the number of their targets."""
        sums, counts = zip(*self.losses(), strict=True)
        return torch.stack(sums).sum(), sum(counts)

    def _rows(self, item: int) -> list[TaskRow]:
        return [self.part.rows[number] for number in self.part.items[item]]

    def _size(self, row: TaskRow) -> int:
        return self.part.answering.num_answers(row)

    def _loss(
        self, outputs: Tensor, sizes: Sequence[int], items: Sequence[int]
    ) -> tuple[Tensor, int]:
        targets = [target for item in items for target in self.part.targets[item]]
        right = torch.tensor(targets, dtype=target_type(self.part), device=outputs.device)
        return self.part.answering.loss(outputs, sizes, right)[0], len(targets)


def asked(model: FineTuned, examples: Examples, at_once: int) -> list[Asked]:
    """Examples whose answers are known, so many items at a time."""
    part = Part.of(model.task, examples, examples, model.maker)
    numbers = range(len(part.items))
    starts = range(0, len(numbers), at_once)
    return [Asked(model, part, numbers[start : start + at_once]) for start in starts]


@torch.no_grad()
def sums_and_counts(batches: Sequence[Asked]) -> tuple[Floats, Floats]:
    """The loss of every item and the number of its targets, (N,) each."""
    found = [(float(loss), count) for batch in batches for loss, count in batch.losses()]
    sums, counts = np.array(found, np.float64).T
    return sums, counts


def mean_loss(batches: Sequence[Asked]) -> float:
    """Over all targets, in nats where answers have probabilities."""
    sums, counts = sums_and_counts(batches)
    return float(sums.sum() / counts.sum())
