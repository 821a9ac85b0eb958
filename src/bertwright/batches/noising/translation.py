"""Translation from one side of a pair to the other (Vaswani et al. 2017)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, Int32Array
from bertwright.batches.noising.noising import Noising, replace_text
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng


class Translation(Noising):
    """The encoder reads the first side of a pair, the decoder predicts the second.

    It needs ``assembly.kind: translation-pair`` with one pair per sequence. Targets longer than a
    fraction ``target_fraction`` of the length are truncated.
    """

    kind: Literal["translation"] = "translation"
    begins: Literal["pad", "start", "end", "mask"] = "start"
    target_fraction: float = Field(default=0.5, gt=0.0, lt=1.0)

    def num_targets(self, length: int) -> int:
        return max(2, int(self.target_fraction * length))

    def add_noise(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> tuple[SequenceBatch, Targets]:
        document_ids, language_ids = batch.token_info.document_ids, batch.token_info.language_ids
        if (
            document_ids is None
            or language_ids is None
            or not (is_second := _is_second_text(document_ids, language_ids)).any()
        ):
            raise UserError(
                "objectives.denoising.noising: translation needs pairs: set "
                "assembly.kind to translation-pair"
            )
        if (document_ids > 0).any():
            raise UserError(
                "objectives.denoising.noising: translation needs one pair per sequence: set "
                "assembly.packing to false"
            )
        length, column = document_ids.shape[1], np.arange(document_ids.shape[1])
        is_first = (document_ids == 0) & ~is_second
        second_starts, second_lengths = is_second.argmax(axis=1), is_second.sum(axis=1) - 1
        num_targets = self.num_targets(length)
        columns = np.arange(num_targets)
        is_real = columns < np.minimum(second_lengths, num_targets)[:, None]
        source_positions = np.where(is_real, second_starts[:, None] + 1 + columns, 0)
        target_ids = np.take_along_axis(batch.token_ids, source_positions, 1).astype(np.int64)
        pad = vocabulary.specials.pad
        token_ids = np.where(is_first, batch.token_ids, pad).astype(np.int64)
        identity = np.broadcast_to(column, document_ids.shape).astype(np.int64)
        noised = replace_text(batch, token_ids, identity, is_first)
        return noised, self.make_targets(
            batch,
            vocabulary,
            (int(is_real.sum()), int(is_first.sum() + is_real.sum())),
            token_ids=np.where(is_real, target_ids, pad),
            is_real=is_real,
            source_positions=source_positions,
            is_unscored=np.take_along_axis(batch.is_spelled_special, source_positions, 1),
        )


def _is_second_text(document_ids: Int32Array, language_ids: Int32Array) -> BoolArray:
    """Return which positions (B, L) belong to the second text, in the other language."""
    return (document_ids >= 0) & (language_ids != language_ids[:, :1])
