"""Targets: the positions to predict, their labels and weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import IntArray
from bertwright.batches.masking import MaskSelection
from bertwright.batches.masking.corruption import Corruption
from bertwright.batches.token_info import RELATIONS, Relation, SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """Prediction targets at M positions, sequence by sequence; M is the same in every step.

    - ``positions``: (M,) int64, indices into the flattened batch (B * L)
    - ``labels``: (M,) int64
    - ``weights``: (M,) float32, 0 for fillers, which keep M constant
    - ``extra_inputs``: further inputs of the head by name, (M,) int64 each
    - ``masked_counts``: numbers of masked and of real tokens; None if they follow from ``weights``
      and the batch
    """

    positions: IntArray
    labels: IntArray
    weights: NDArray[np.float32]
    extra_inputs: Mapping[str, IntArray] = field(default_factory=dict[str, IntArray])
    masked_counts: tuple[int, int] | None = None


BatchWithTargets = tuple[SequenceBatch, Targets]
"""Sequences, corrupted if the objective masks its input, and their targets."""


def mask_tokens(
    batch: SequenceBatch,
    selection: MaskSelection,
    corruption: Corruption,
    vocabulary: Vocabulary,
    rng: CounterRng,
    progress: float,
) -> BatchWithTargets:
    """Select positions, corrupt them, and return the corrupted batch with its targets."""
    rng = rng.at_epoch(corruption.repeated_epoch(rng.epoch))
    selected = selection.select(batch, vocabulary, rng.fold_in("selection"), progress)
    token_ids = corruption.corrupt(batch, selected, vocabulary, rng.fold_in("corruption"))
    return replace(batch, token_ids=token_ids), token_targets(
        batch, selected.positions, selected.weights
    )


def next_token_targets(batch: SequenceBatch, shift: Literal[1, -1] = 1) -> Targets:
    """Return next-token targets at every position but the last (causal language model).

    A position has weight 1 if the next one is real and belongs to the same document, and weight 0
    otherwise. So the end of a document is predicted, but not the end of a sequence that is
    truncated within a document. Special tokens spelled out in the text are not predicted either.
    With ``shift`` -1 the targets are the previous tokens.
    """
    positions, weights = _positions_with_next(batch)
    predicted = slice(1, None) if shift == 1 else slice(-1)
    if batch.is_truncation_boundary is not None:
        weights[batch.is_truncation_boundary[:, predicted]] = 0
    weights[batch.is_spelled_special[:, predicted]] = 0
    return token_targets(batch, positions if shift == 1 else positions + 1, weights, shift)


def all_position_targets(batch: SequenceBatch) -> Targets:
    """Return a target with label 0 at every position; padding has weight 0."""
    positions = np.arange(batch.token_ids.size)
    return Targets(positions, np.zeros_like(positions), batch.is_real.ravel().astype(np.float32))


def all_transition_targets(batch: SequenceBatch) -> Targets:
    """Return a target with label 0 at every position but the last.

    Positions without a next position in their document have weight 0.
    """
    targets = token_targets(batch, *_positions_with_next(batch))
    return replace(targets, labels=np.zeros_like(targets.labels))


def previous_token_targets(batch: SequenceBatch) -> Targets:
    """Return previous-token targets: :func:`next_token_targets` read backwards."""
    return next_token_targets(batch, shift=-1)


def bidirectional_targets(batch: SequenceBatch) -> Targets:
    """Return next-token targets, then previous-token targets.

    ``extra_inputs["is_next"]`` is 1 for the former and 0 for the latter.
    """
    next_targets, previous_targets = next_token_targets(batch), previous_token_targets(batch)
    is_next = np.repeat(
        np.array([1, 0], np.int64), [len(next_targets.positions), len(previous_targets.positions)]
    )
    return Targets(
        np.concatenate((next_targets.positions, previous_targets.positions)),
        np.concatenate((next_targets.labels, previous_targets.labels)),
        np.concatenate((next_targets.weights, previous_targets.weights)),
        {"is_next": is_next},
    )


def _positions_with_next(batch: SequenceBatch) -> tuple[IntArray, NDArray[np.float32]]:
    """Return positions and weights, (B, L - 1) each.

    The weight is 1 if the next position is real and belongs to the same document, otherwise 0.
    """
    document_ids = batch.token_info.document_ids
    num_sequences, length = batch.token_ids.shape
    is_followed = np.ones((num_sequences, length - 1), np.bool_)
    if document_ids is not None:
        is_followed = (document_ids[:, 1:] == document_ids[:, :-1]) & (document_ids[:, 1:] >= 0)
    return np.broadcast_to(np.arange(length - 1), is_followed.shape), is_followed.astype(np.float32)


def relation_targets(batch: SequenceBatch, classes: Sequence[Relation]) -> Targets:
    """Return a target at the first position of each sequence: its relation, one of ``classes``.

    Sequences with another relation have weight 0.
    """
    if batch.relation is None:
        raise UserError(
            "the relation of texts is known for pairs and dialogues only: set assembly.kind to "
            "segment-pair, sentence-pair or dialogue"
        )
    class_ids = np.array([classes.index(r) if r in classes else -1 for r in RELATIONS])
    labels = class_ids[batch.relation]
    num_sequences, length = batch.token_ids.shape
    positions = length * np.arange(num_sequences, dtype=np.int64)
    return Targets(positions, np.maximum(labels, 0), (labels >= 0).astype(np.float32))


def span_boundary_targets(
    batch: SequenceBatch, masked_targets: Targets, max_offset: int
) -> Targets:
    """Return targets that predict masked tokens from the two positions around their span.

    ``extra_inputs`` holds ``left_positions`` and ``right_positions``, which are indices into the
    flattened batch, and ``span_offsets``, the offset of each token in its span, from 0. The weight
    is 0 for spans next to a special token or the end of a sequence, and for offsets of
    ``max_offset`` or more.
    """
    num_positions = batch.token_ids.size
    positions = np.arange(num_positions)
    is_masked = np.zeros(num_positions, np.bool_)
    is_masked[masked_targets.positions[masked_targets.weights > 0]] = True
    is_special = batch.is_special.ravel()
    left = np.maximum.accumulate(np.where(is_masked, 0, positions))[masked_targets.positions]
    right = np.minimum.accumulate(np.where(is_masked, num_positions - 1, positions)[::-1])[::-1][
        masked_targets.positions
    ]
    offset = masked_targets.positions - left - 1
    length = batch.token_ids.shape[1]
    is_enclosed = ~is_masked[left] & ~is_masked[right] & (left // length == right // length)
    is_scored = (
        (masked_targets.weights > 0)
        & is_enclosed
        & ~is_special[left]
        & ~is_special[right]
        & (offset < max_offset)
    )
    extra_inputs = {
        "left_positions": left,
        "right_positions": right,
        "span_offsets": np.clip(offset, 0, max_offset - 1),
    }
    return Targets(
        masked_targets.positions, masked_targets.labels, is_scored.astype(np.float32), extra_inputs
    )


def token_targets(
    batch: SequenceBatch, positions: IntArray, weights: NDArray[np.float32], shift: int = 0
) -> Targets:
    """Return targets at ``positions`` (B, m): the tokens ``shift`` positions later."""
    num_sequences, length = batch.token_ids.shape
    labels = np.take_along_axis(batch.token_ids, positions + shift, axis=1).astype(np.int64)
    flat_positions = positions + length * np.arange(num_sequences)[:, None]
    return Targets(flat_positions.ravel(), labels.ravel(), weights.ravel())
