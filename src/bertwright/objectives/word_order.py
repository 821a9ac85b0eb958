"""Word order: a few short spans of tokens are shuffled."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.masking.selection import (
    FILLER_POSITION,
    count_slots,
    masking_budget,
    shuffle_candidates,
)
from bertwright.batches.targets import BatchWithTargets, token_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.objective import MaskingContext, Objective


def shuffle_spans(
    batch: SequenceBatch, is_excluded: BoolArray, span_length: int, fraction: float, rng: CounterRng
) -> BatchWithTargets:
    """Permute spans of ``span_length`` tokens, and predict the original tokens.

    The spans cover at most ``fraction`` of the real tokens, but there is at least one. No span
    contains a special token or a token that ``is_excluded`` (B, L). Every span is reordered,
    although equal tokens may conceal it.
    """
    num_sequences, length = batch.token_ids.shape
    first = rng.fold_in("first").integers(span_length)
    max_spans = (length - span_length + 1) // span_length
    if max_spans < 1:
        raise UserError(
            f"spans of {span_length} tokens are too long for sequences of {length}: set objectives."
            f"word-order.size to {(length + 1) // 2} at most"
        )
    starts = first + span_length * np.arange(max_spans)
    num_slots = min(max(1, count_slots(length, fraction) // span_length), starts.shape[1])
    candidates = starts[:, :, None] + np.arange(span_length)
    sequences = np.arange(num_sequences)[:, None, None]
    is_blocked: BoolArray = (batch.is_special | is_excluded)[sequences, candidates]
    is_free = np.logical_not(is_blocked.any(axis=2))
    order, num_candidates = shuffle_candidates(is_free, rng.fold_in("runs"))
    is_selected = np.arange(num_slots) < np.minimum(
        num_candidates, np.maximum(masking_budget(batch, fraction, length) // span_length, 1)
    )
    spans = np.take_along_axis(candidates, order[:, :num_slots, None], axis=1)
    source = np.take_along_axis(
        spans, _non_identity_permutations(spans, rng.fold_in("permutation")), axis=2
    )

    token_ids = batch.token_ids.copy()
    is_moved = np.broadcast_to(is_selected[:, :, None], spans.shape)
    moved_sequences = np.nonzero(is_moved)[0]
    token_ids[moved_sequences, spans[is_moved]] = batch.token_ids[moved_sequences, source[is_moved]]
    positions = np.where(is_selected[:, :, None], spans, FILLER_POSITION).reshape(num_sequences, -1)
    weights = np.repeat(is_selected, span_length, axis=1).astype(np.float32)
    return replace(batch, token_ids=token_ids), token_targets(batch, positions, weights)


def _non_identity_permutations(spans: IntArray, rng: CounterRng) -> IntArray:
    """Return a permutation other than the identity for every span (B, R, size)."""
    size = spans.shape[2]
    bits = rng.random_bits(spans.reshape(len(spans), -1)).reshape(spans.shape)
    permutation = np.argsort(bits, axis=2)
    identity = (permutation == np.arange(size)).all(axis=2, keepdims=True)
    return np.where(identity, np.roll(permutation, 1, axis=2), permutation)


class WordOrder(Objective):
    """Permute spans of ``size`` tokens over at most ``shuffled_fraction`` of the text.

    The original token is predicted at each of their positions. Targets of earlier objectives are
    not moved. The paper does not say whether its 5 % counts spans or tokens, nor whether a span may
    keep its order. Here it counts tokens, and every span is reordered.
    """

    kind: Literal["word-order"] = "word-order"
    size: int = Field(default=3, ge=2, le=64)
    shuffled_fraction: float = Field(default=0.05, gt=0.0, lt=1.0)

    capabilities: ClassVar[Capabilities] = Capabilities(
        predicts_tokens=True, masks_input=True, corrupts_input=True
    )

    def targets_per_token(self, length: int) -> float:
        return self.shuffled_fraction

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        is_excluded = np.zeros(batch.token_ids.shape, np.bool_)
        for targets in context.earlier_targets.values():
            is_excluded.ravel()[targets.positions[targets.weights > 0]] = True
        rng = context.rng.fold_in("word-order")
        return shuffle_spans(batch, is_excluded, self.size, self.shuffled_fraction, rng)
