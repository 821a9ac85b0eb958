"""Permutation language modelling: predict tokens in random order; positions do not change."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, Int32Array
from bertwright.batches.masking import (
    MaskSelection,
    SelectedPositions,
    SpanSelection,
    part_numbers,
)
from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule
from bertwright.modules.attention.mask import PermutationVisibility, Visibility
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.objective import MaskingContext, Objective


def random_factorisation_order(
    batch: SequenceBatch, selected: SelectedPositions, rng: CounterRng, parts: int = 1
) -> Int32Array:
    """Return the rank (B, L) of every position; unmasked positions share rank 0.

    Like masked positions, special tokens have separate ranks (released code of Yang et al. 2019).
    All ranks of one of the ``parts`` of a sequence are higher than those of the part before.
    """
    length = batch.token_ids.shape[1]
    columns = np.arange(length)
    is_ranked = batch.is_special.copy()
    is_ranked[np.nonzero(selected.weights > 0)[0], selected.positions[selected.weights > 0]] = True
    rank = np.argsort(np.argsort(rng.random_bits(columns), axis=1), axis=1)
    first_rank = (1 + length) * part_numbers(length, parts)
    return (first_rank + np.where(is_ranked, 1 + rank, 0)).astype(np.int32)


def add_query_stream(
    batch: SequenceBatch, selected: SelectedPositions, factorisation_order: Int32Array
) -> BatchWithTargets:
    """Predict each selected position from those before it in ``factorisation_order`` (B, L).

    Each gets a query token after the text, with the same position id.
    """
    if batch.token_info.is_query_stream is not None:
        raise UserError("only one objective may predict in a permuted order")
    positions, weights = selected.positions, selected.weights
    num_sequences, length = batch.token_ids.shape

    columns = np.broadcast_to(np.arange(length), batch.token_ids.shape)
    width = length + positions.shape[1]
    text_info = batch.token_info
    if text_info.position_ids is None:
        text_info = replace(text_info, position_ids=columns.astype(np.int32))
    if text_info.document_ids is None:
        text_info = replace(text_info, document_ids=np.zeros(batch.token_ids.shape, np.int32))
    text_info = replace(text_info, factorisation_order=factorisation_order)
    query_sources = np.where(weights > 0, positions, -1)
    token_info = replace(
        text_info.gather(np.concatenate([columns, query_sources], axis=1)),
        is_query_stream=np.tile(np.arange(width) >= length, (num_sequences, 1)),
    )
    is_special = np.concatenate([batch.is_special, np.ones(positions.shape, np.bool_)], axis=1)
    labels = np.take_along_axis(batch.token_ids, positions, axis=1).astype(np.int64)
    token_ids = np.pad(batch.token_ids, ((0, 0), (0, positions.shape[1])))
    query_positions = (
        length + np.arange(positions.shape[1]) + width * np.arange(num_sequences)[:, None]
    )
    targets = Targets(query_positions.ravel(), labels.ravel(), weights.ravel())
    return SequenceBatch(token_ids, token_info, is_special, batch.relation), targets


class PermutationLM(Objective):
    """Predict the last positions of a random order, each from those before it in that order.

    ``selection`` selects the predicted positions. Each has a query token after the text. These
    query tokens are the second of the paper's two streams, in the same pass through the same
    blocks. The order covers each of ``parts`` equal parts of a sequence, which attend to all
    earlier parts and to no later one.
    """

    kind: Literal["permutation"] = "permutation"
    parts: int = Field(default=1, ge=1, le=64)
    selection: MaskSelection = SpanSelection(
        masking_rate=ConstantSchedule(value=1 / 6), law="harmonic", longest=5, of="tokens"
    )

    capabilities: ClassVar[Capabilities] = Capabilities(
        prediction="permutation", predicts_tokens=True, masks_input=True
    )

    @property
    def mask_selection(self) -> MaskSelection:
        return self.selection

    @property
    def visibility(self) -> Visibility:
        return PermutationVisibility()

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        rng = context.rng.fold_in("permutation")
        selected = self.selection.select(
            batch, context.vocabulary, rng.fold_in("selection"), context.progress
        )
        return add_query_stream(
            batch,
            selected,
            random_factorisation_order(batch, selected, rng.fold_in("order"), self.parts),
        )

    def make_targets_at(
        self,
        selected: SelectedPositions,
        is_masked: BoolArray,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
    ) -> BatchWithTargets:
        """Return targets with all masked positions last in the order, at the same rank."""
        return add_query_stream(batch, selected, is_masked.astype(np.int32))
