"""Windows of user histories for sequential recommendation (Sun et al. 2019)."""

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.layout import gather_padded
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import DataRequirement, SequenceBatch, TokenInfoArrays
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class ItemHistory(InputFormat):
    """Items in temporal order, without special tokens, padded on the right.

    A history longer than a sequence is split into windows: the last ``length`` items, then windows
    that each start a fraction ``step`` of the length earlier, back to the first item. In one epoch
    every window occurs ``windows`` times, masked differently each time, and ``last`` more times
    with only its last item masked, as at inference. If ``windows`` is 0, as in evaluation, these
    are the last windows of all users.
    """

    kind: Literal["item-history"] = "item-history"
    step: float = Field(default=0.5, gt=0.0, le=1.0)
    windows: int = Field(default=10, ge=0, le=1 << 20)
    last: int = Field(default=1, ge=0, le=1 << 20)

    @model_validator(mode="after")
    def _require_sequences(self) -> Self:
        if not self.windows + self.last:
            raise ValueError("windows and last must not both be 0")
        return self

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return frozenset({"histories"})

    @property
    def for_evaluation(self) -> InputFormat:
        return self.model_copy(update={"windows": 0, "last": 1})

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        first = np.asarray(split.document_starts[:-1], np.int64)
        sizes = np.diff(split.document_starts)
        first, sizes = first[sizes > 1], sizes[sizes > 1]
        if not len(sizes):
            raise UserError(f"the {split.name} split holds no history of two items: prepare more")
        step = max(1, round(self.step * self.length))
        num_windows = 1 + np.maximum(-(-(sizes - self.length) // step), 0)
        users = np.repeat(np.arange(len(sizes)), num_windows)
        windows_back = np.arange(len(users)) - np.repeat(
            np.cumsum(num_windows) - num_windows, num_windows
        )
        starts = first[users] + np.maximum(sizes[users] - self.length - windows_back * step, 0)
        lengths = np.minimum(sizes[users], self.length)
        every = np.arange(len(users))
        with_last_masked = every if self.windows else np.flatnonzero(windows_back == 0)
        windows = np.concatenate(
            [np.tile(every, self.windows), np.tile(with_last_masked, self.last)]
        )
        # Windows in which every item can be masked come first, then those with only the last item.
        num_full_windows = len(users) * self.windows
        starts, lengths = starts[windows], lengths[windows]

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            sizes = lengths[index][:, None]
            tokens, _ = gather_padded(split, starts[index], self.length)
            positions = np.broadcast_to(np.arange(self.length, dtype=np.int32), tokens.shape)
            is_text = positions < sizes
            only_last = (index >= num_full_windows)[:, None] & (positions != sizes - 1)
            token_info = TokenInfoArrays(
                document_ids=np.where(is_text, np.int32(0), np.int32(-1)),
                word_ids=np.where(is_text, positions, np.int32(-1)),
            )
            token_ids = np.where(is_text, tokens, np.int32(specials.pad))
            return SequenceBatch(token_ids, token_info, ~is_text | only_last)

        return SequenceSource(len(starts), sequences)
