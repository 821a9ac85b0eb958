"""Steps of fine-tuning: the items of one part with what is asked of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.model.reading import padded
from bertwright.model.text_model import TextModel
from bertwright.tasks.bucketing import BatchPlan, StepRows
from bertwright.tasks.encoding import TaskRow, documents_of
from bertwright.tasks.fine_tuned import flat_places
from bertwright.tasks.language_model import NEXT_PIECES, num_next_pieces
from bertwright.tasks.parts import Part, Turns, target_type
from bertwright.tasks.seen_pieces import SeenPieces
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place

MICRO_BATCH_PLACES = 8192
"""A step with more places than this is computed in equal parts, which bounds its memory."""

ANSWER = "answer"
"""The name of the one question that is asked."""


Counts = Callable[[Sequence[TaskRow], float], Mapping[str, float]]


def uncounted(rows: Sequence[TaskRow], count: float) -> Mapping[str, float]:
    """Nothing but what is asked."""
    return {}


@dataclass(frozen=True)
class TaskBatch:
    """Some items of a part on the device, and what is asked of them.

    Attributes:
        part: whose they are.
        numbers: of the rows, fillers included.
        pieces: (B, L) int64.
        where: (M,) flat places, None where whole rows are asked.
        sizes: how many outputs each row has, fillers included.
        item_sizes: how many outputs each item has, fillers left out.
        targets: (T,) of the items; what fillers give is not looked at.
        num_rows: how many rows are no fillers; these come first.
        first_row, first_answer: where the first of them stand in the step.
        count: what the loop divides the losses of the step by.
    """

    part: int
    numbers: Sequence[int]
    pieces: Tensor
    coordinates: Coordinates
    where: Tensor | None
    sizes: Sequence[int]
    item_sizes: Sequence[int]
    targets: Tensor
    num_rows: int
    first_row: int
    first_answer: int
    count: float


@dataclass(frozen=True)
class Batches:
    """Steps of items with their targets."""

    source: TextModel
    parts: Sequence[Part]
    plans: Sequence[BatchPlan]
    turns: Turns
    seen: SeenPieces | None = None
    """By which pieces are numbered, where that is not by the vocabulary."""
    asks_next: bool = False
    """Whether next pieces are asked for as well."""
    counts: Counts = uncounted
    """What else losses are divided by, of the rows of a step and the number of their targets."""

    def at(self, place: Place) -> StepBatch[TaskBatch]:
        """The batch of a step."""
        turn = self.turns.at(place.step)
        part = self.parts[turn.part]
        step = self.plans[turn.part].at(turn.step)
        items = [part.items[int(number)] for number in step.numbers]
        count = sum(len(part.targets[int(n)]) for n in step.numbers[: step.num_real])
        size = self._items_at_once(part, items, step.length)
        micro_batches: list[TaskBatch] = []
        first_row = first_answer = 0
        for start in range(0, step.num_real, size):
            of = slice(start, start + size)
            num_real = min(size, step.num_real - start)
            micro = self._micro_batch(
                turn.part, step, of, num_real, (first_row, first_answer), float(count)
            )
            micro_batches.append(micro)
            first_row += len(micro.numbers)
            first_answer += sum(micro.item_sizes)
        real = [part.rows[n] for item in items[: step.num_real] for n in item]
        counts = {ANSWER: float(count)}
        if self.asks_next:
            counts[NEXT_PIECES] = float(num_next_pieces(real))
        counts |= self.counts(real, float(count))
        num_tokens = sum(len(row.pieces) for row in real)
        return StepBatch(micro_batches, counts, len(real), num_tokens)

    @staticmethod
    def _items_at_once(part: Part, items: Sequence[range], length: int) -> int:
        """How many items a micro-batch has, so that all of them have as many."""
        if part.task.answer.whole_steps:
            return len(items)
        places = sum(len(item) for item in items) * length
        num_parts = min(-(-places // MICRO_BATCH_PLACES), len(items))
        while len(items) % num_parts:
            num_parts += 1
        return len(items) // num_parts

    def _micro_batch(
        self,
        number: int,
        step: StepRows,
        of: slice,
        num_real: int,
        first: tuple[int, int],
        count: float,
    ) -> TaskBatch:
        part = self.parts[number]
        device = self.source.device
        chosen = [int(n) for n in step.numbers[of]]
        numbers = [n for item in chosen for n in part.items[item]]
        rows = [part.rows[n] for n in numbers]
        pieces, coordinates = batched(rows, step.length, self.source)
        if self.seen is not None:
            pieces = self.seen.number[pieces]
        places = part.task.answer.reads == "places"
        sizes = [part.answering.num_answers(row) for row in rows]
        item_sizes = [
            sum(part.answering.num_answers(part.rows[n]) for n in part.items[item])
            for item in chosen[:num_real]
        ]
        targets = [target for item in chosen[:num_real] for target in part.targets[item]]
        return TaskBatch(
            number,
            numbers,
            pieces,
            coordinates,
            flat_places(rows, step.length).to(device) if places else None,
            sizes,
            item_sizes,
            torch.tensor(targets, dtype=target_type(part), device=device),
            sum(len(part.items[item]) for item in chosen[:num_real]),
            *first,
            count,
        )


def batched(rows: Sequence[TaskRow], length: int, source: TextModel) -> tuple[Tensor, Coordinates]:
    """Rows as pieces (B, L) with coordinates, which say which places are real even where all are:
    so a step has one shape, for which it is compiled once."""
    every: NDArray[np.int64] = np.arange(len(rows))
    segmented = rows[0].segments is not None
    batch = padded(
        [row.pieces for row in rows],
        [row.segments or [] for row in rows] if segmented else None,
        every,
        length,
        source.tokenizer.specials.pad,
        source.device,
        documents_of(rows),
    )
    coordinates = batch.coordinates
    if coordinates.document is None:
        coordinates = replace(coordinates, document=torch.zeros_like(batch.pieces))
    return batch.pieces, coordinates
