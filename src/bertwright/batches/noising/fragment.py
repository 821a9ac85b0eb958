"""Noising that masks one fragment of a text, which the decoder predicts (Song et al. 2019)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from bertwright.batches.masking import SelectedPositions, count_slots
from bertwright.batches.masking.corruption import Corruption, TokenReplacement
from bertwright.batches.noising.noising import Noising, require_single_text
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import CounterRng
from bertwright.data.tokenization.tokenizer import SpecialTokens


class Fragment(Noising):
    """One contiguous fragment of ``masking_rate`` of the tokens, at least one, is corrupted.

    ``corruption`` is applied to the fragment in the encoder input. The decoder input is only the
    fragment, at its positions in the text; the first token is predicted from the start token.
    """

    kind: Literal["fragment"] = "fragment"
    begins: Literal["pad", "start", "end", "mask"] = "mask"
    masking_rate: float = Field(default=0.5, gt=0.0, le=1.0)
    corruption: Corruption = TokenReplacement()

    permutes_input: ClassVar[bool] = False

    @field_validator("corruption")
    @classmethod
    def _require_dynamic(cls, corruption: Corruption) -> Corruption:
        if corruption.when == "static":
            raise ValueError("when: fragments are redrawn in every epoch: set it to dynamic")
        return corruption

    @property
    def mid_training_masking_rate(self) -> float:
        return self.masking_rate

    def num_targets(self, length: int) -> int:
        return count_slots(length, self.masking_rate)

    def num_positions(self, length: int) -> int:
        return length

    def first_position(self, source_ids: Sequence[int], specials: SpecialTokens) -> int:
        return source_ids.index(specials.mask) if specials.mask in source_ids else 0

    def add_noise(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> tuple[SequenceBatch, Targets]:
        require_single_text(batch)
        is_text = ~batch.is_special
        num_text = is_text.sum(axis=1, keepdims=True)
        num_slots = self.num_targets(batch.token_ids.shape[1])
        sizes = np.rint(self.masking_rate * num_text).astype(np.int64)
        sizes = np.minimum(np.clip(sizes, 1, num_slots), num_text)
        first = rng.fold_in("first").integers(num_text - sizes + 1)
        rank = np.cumsum(is_text, axis=1) - 1
        in_fragment = is_text & (rank >= first) & (rank < first + sizes)
        selected = SelectedPositions.from_unit_ids(np.where(in_fragment, 0, -1), num_slots)
        token_ids = self.corruption.corrupt(batch, selected, vocabulary, rng.fold_in("corruption"))
        position_ids, positions = batch.token_info.position_ids, selected.positions
        text_positions = positions
        if position_ids is not None:
            text_positions = np.take_along_axis(position_ids, positions, 1).astype(np.int64)
        noised = replace(batch, token_ids=token_ids)
        return noised, self.make_targets(
            noised,
            vocabulary,
            (int(in_fragment.sum()), int(batch.is_real.sum())),
            token_ids=np.take_along_axis(batch.token_ids, positions, 1).astype(np.int64),
            is_real=selected.weights > 0,
            source_positions=positions,
            position_ids=text_positions,
        )
