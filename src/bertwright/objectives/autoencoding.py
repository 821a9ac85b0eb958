"""Sequence autoencoding (Dai and Le 2015, section 2)."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from bertwright.batches.masking import FILLER_POSITION
from bertwright.batches.targets import BatchWithTargets, token_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.modules.attention.mask import CausalVisibility as CausalRule
from bertwright.modules.attention.mask import Visibility
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.objective import MaskingContext, Objective


def repeat_text(batch: SequenceBatch, reverse: bool, vocabulary: Vocabulary) -> BatchWithTargets:
    """Return the first text of each sequence followed by its repetition, and next-token targets.

    The text is truncated to half the length; with ``reverse`` its first occurrence is reversed. All
    positions of the repetition except the last predict the next token.
    """
    length = batch.token_ids.shape[1]
    document_ids = batch.token_info.document_ids
    is_first_text = (
        batch.is_real
        if document_ids is None
        else batch.is_real & (document_ids == document_ids[:, :1])
    )
    sizes = np.minimum(is_first_text.sum(axis=1, keepdims=True), length // 2)
    columns = np.arange(length)
    is_repetition, is_padding = columns >= sizes, columns >= 2 * sizes
    source = np.where(is_repetition, columns - sizes, sizes - 1 - columns if reverse else columns)
    source = np.where(is_padding, 0, source)
    token_info = replace(
        batch.token_info.gather(np.where(is_padding, -1, source)),
        document_ids=np.where(is_padding, -1, 0).astype(np.int32),
        position_ids=np.where(is_padding, 0, columns).astype(np.int32),
    )
    token_ids = np.take_along_axis(batch.token_ids, source, axis=1)
    repeated = replace(
        batch,
        token_ids=np.where(is_padding, vocabulary.specials.pad, token_ids).astype(np.int32),
        token_info=token_info,
        is_special=np.take_along_axis(batch.is_special, source, axis=1) | is_padding,
        is_truncation_boundary=None,
    )
    steps = np.arange(length // 2 - 1)
    is_scored = steps < sizes - 1
    positions = np.where(is_scored, sizes + steps, FILLER_POSITION)
    is_scored &= ~np.take_along_axis(repeated.is_spelled_special, positions + 1, axis=1)
    return repeated, token_targets(repeated, positions, is_scored.astype(np.float32), shift=1)


class Autoencoding(Objective):
    """Read the first text of a sequence, up to half its length, then predict it token by token.

    ``backwards`` reads it from the end. The objective is useful for encoders that carry the text in
    one state; attention simply copies it.
    """

    kind: Literal["autoencoding"] = "autoencoding"
    backwards: bool = False

    capabilities: ClassVar[Capabilities] = Capabilities(predicts_tokens=True, permutes_input=True)

    @property
    def visibility(self) -> Visibility:
        return CausalRule()

    def targets_per_token(self, length: int) -> float:
        return (length // 2 - 1) / length

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return repeat_text(batch, self.backwards, context.vocabulary)
