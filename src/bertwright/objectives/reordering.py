"""Sentence reordering: predict how segments were permuted (Sun et al. 2019b, 4.2.2)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import factorial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import FloatArray, IntArray
from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.classification import SequenceClassification
from bertwright.objectives.objective import MaskingContext


def num_orders(max_parts: int) -> int:
    """Return the number of possible orders of 1 to ``max_parts`` segments."""
    return sum(factorial(n) for n in range(1, max_parts + 1))


def reorder_segments(batch: SequenceBatch, max_parts: int, rng: CounterRng) -> BatchWithTargets:
    """Permute 1 to ``max_parts`` segments of the first text, which is split between sentences.

    The target, at the first position, is the order. Orders are numbered by the number of segments,
    then in the order of ``itertools.permutations``.
    """
    sentence_ids = batch.token_info.sentence_ids
    if sentence_ids is None:
        raise UserError("objectives.reordering needs an input format with sentence boundaries")
    num_sequences, length = batch.token_ids.shape
    all_columns = np.arange(length)
    # The first text ends at the first special token after its start.
    is_end = batch.is_special & ~batch.is_spelled_special & (all_columns > 0)
    text_ends = np.where(is_end.any(axis=1), is_end.argmax(axis=1), length)
    source = np.broadcast_to(all_columns, batch.token_ids.shape).copy()
    labels = np.zeros(num_sequences, np.int64)
    num_parts = 1 + rng.fold_in("parts").integers(max_parts)[:, 0]
    boundary_draws = rng.fold_in("cuts").uniform(np.arange(max_parts))
    order_draws = rng.fold_in("order").uniform(np.zeros(1, np.int64))[:, 0]
    for i in range(num_sequences):
        columns = np.flatnonzero(~batch.is_special[i, : text_ends[i]])
        starts = columns[1:][np.diff(sentence_ids[i, columns]) != 0]
        num_segments = min(int(num_parts[i]), len(starts) + 1)
        boundaries = np.sort(
            starts[np.argsort(_distinct_scores(boundary_draws[i], len(starts)))[: num_segments - 1]]
        )
        segments = np.split(columns, np.searchsorted(columns, boundaries))
        order = int(order_draws[i] * factorial(num_segments))
        permutation = list(permutations(range(num_segments)))[order]
        source[i, columns] = np.concatenate([segments[n] for n in permutation])
        labels[i] = num_orders(num_segments - 1) + order
    positions = length * np.arange(num_sequences, dtype=np.int64)
    return _gather(batch, source), Targets(positions, labels, np.ones(num_sequences, np.float32))


def _distinct_scores(uniforms: FloatArray, num_boundaries: int) -> FloatArray:
    """Return distinct random scores for all sentence boundaries, from few uniform numbers."""
    return (uniforms[0] + np.arange(num_boundaries) * (0.38196601125 + uniforms[-1])) % 1.0


def _gather(batch: SequenceBatch, source_positions: IntArray) -> SequenceBatch:
    """Return sequences with the tokens and annotations at ``source_positions`` (B, L)."""
    annotations = batch.token_info.gather(source_positions).annotations()
    token_ids = np.take_along_axis(batch.token_ids, source_positions, axis=1)
    return replace(batch, token_ids=token_ids, token_info=replace(batch.token_info, **annotations))


class SentenceReordering(SequenceClassification):
    """Permute 1 to ``parts`` segments of the first text and predict the order.

    There are 1! + 2! + ... classes. The objective must be listed before objectives that mask.
    """

    kind: Literal["reordering"] = "reordering"
    parts: int = Field(default=3, ge=2, le=5)

    capabilities: ClassVar[Capabilities] = Capabilities(permutes_input=True)

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return reorder_segments(batch, self.parts, context.rng.fold_in("reordering"))

    @property
    def class_labels(self) -> Sequence[str]:
        return [f"order {number}" for number in range(num_orders(self.parts))]
