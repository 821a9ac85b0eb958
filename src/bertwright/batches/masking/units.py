"""Selection of tokens, whole words, phrases and entities."""

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bertwright.batches.arrays import Int32Array, IntArray
from bertwright.batches.masking.selection import (
    FILLER_POSITION,
    Fraction,
    MaskSelection,
    SelectedPositions,
    fill_remaining_budget,
    is_unspaced,
    select_whole_units,
    shuffle_candidates,
    starts_unit,
)
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule


class TokenSelection(MaskSelection):
    """Single tokens, drawn without replacement uniformly (Devlin et al. 2019) or by rarity.

    With ``rarity`` r a token is drawn with weight count^-r (Lample and Conneau 2019: 0.5). If
    ``independent``, each token is selected with probability ``masking_rate``, so that the number
    differs between sequences (released code of Lample and Conneau 2019).
    """

    kind: Literal["tokens"] = "tokens"
    rarity: float = Field(default=0.0, ge=0.0)
    independent: bool = False

    @model_validator(mode="after")
    def _check_rarity(self) -> Self:
        if self.independent and self.rarity:
            raise ValueError("rarity needs a fixed number of tokens: set independent to false")
        return self

    def num_slots(self, length: int) -> int:
        """Return the number of slots; independent tokens exceed it once in 30,000 sequences."""
        if not self.independent:
            return super().num_slots(length)
        mean = self.max_masking_rate * length
        deviation = (mean * (1 - self.max_masking_rate)) ** 0.5
        return min(length, math.ceil(mean + 4 * deviation))

    def select(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> SelectedPositions:
        if not self.independent:
            return super().select(batch, vocabulary, rng, progress)
        columns = np.arange(batch.token_ids.shape[1])
        is_selected = (rng.uniform(columns) < self.masking_rate.at(progress)) & ~batch.is_special
        num_slots = self.num_slots(len(columns))
        is_selected &= np.cumsum(is_selected, axis=1) <= num_slots
        return SelectedPositions.from_unit_ids(np.where(is_selected, columns, -1), num_slots)

    def select_positions(
        self,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
        rng: CounterRng,
        num_to_mask: IntArray,
        num_slots: int,
    ) -> SelectedPositions:
        length = batch.token_ids.shape[1]
        if self.rarity:
            order, num_candidates = self._order_by_rarity(batch, vocabulary, rng)
        else:
            order, num_candidates = shuffle_candidates(~batch.is_special, rng)
        num_selected = np.minimum(num_to_mask, num_candidates)
        rank = np.arange(num_slots)
        positions = np.where(rank < num_selected, order[:, :num_slots], length)
        positions.sort(axis=1)
        weights = (rank < num_selected).astype(np.float32)
        positions = np.where(rank < num_selected, positions, FILLER_POSITION)
        return SelectedPositions(positions, weights, positions)

    def _order_by_rarity(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng
    ) -> tuple[IntArray, IntArray]:
        """Return columns in the order of weighted draws without replacement, candidates first.

        Also return the number of candidates, (B, 1). Source: Efraimidis and Spirakis 2006.
        """
        column = np.arange(batch.token_ids.shape[1])
        waiting_times = (
            -np.log1p(-rng.uniform(column))
            * vocabulary.smoothed_counts[batch.token_ids] ** self.rarity
        )
        order = np.argsort(np.where(batch.is_special, np.inf, waiting_times), axis=1, kind="stable")
        return order, (~batch.is_special).sum(axis=1, keepdims=True)


class WholeWordSelection(MaskSelection):
    """All tokens of a word or none (google-research/bert, May 2019).

    Words are taken in random order while they fit in the budget, which counts tokens; a word that
    exceeds the remaining budget is skipped. If more than a tenth of the budget remains, single
    tokens of the skipped words fill it. In text without spaces, tokens count as words. Words end at
    special tokens; the official code instead joins a continuation token at the start of a truncated
    text to the word before.

    A fraction ``whole`` of the sequences is masked like this; in the others, single tokens are
    selected.
    """

    kind: Literal["whole-words"] = "whole-words"
    whole: Fraction = Field(default=ConstantSchedule(value=1.0))

    def select(
        self, batch: SequenceBatch, vocabulary: Vocabulary, rng: CounterRng, progress: float
    ) -> SelectedPositions:
        whole_words = super().select(batch, vocabulary, rng, progress)
        fraction = self.whole.at(progress)
        if fraction == 1.0:
            return whole_words
        tokens = TokenSelection(masking_rate=self.masking_rate).select(
            batch, vocabulary, rng, progress
        )
        whole = rng.fold_in("whole").uniform(0) < fraction
        return SelectedPositions(
            np.where(whole, whole_words.positions, tokens.positions),
            np.where(whole, whole_words.weights, tokens.weights),
            np.where(whole, whole_words.unit_ids, tokens.unit_ids),
        )

    def select_positions(
        self,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
        rng: CounterRng,
        num_to_mask: IntArray,
        num_slots: int,
    ) -> SelectedPositions:
        words, *smaller = self._unit_levels(batch)
        words = np.where(batch.is_special, -1, words)
        unit_ids = np.where(select_whole_units(words, num_to_mask, rng), words, -1)
        return SelectedPositions.from_unit_ids(
            fill_remaining_budget(unit_ids, smaller, batch, rng, num_to_mask), num_slots
        )

    def _unit_levels(self, batch: SequenceBatch) -> list[NDArray[Any]]:
        """Return unit ids (B, L) for each level, largest units first; -1 for special tokens."""
        word_ids = batch.token_info.word_ids
        if word_ids is None:
            raise UserError(f"selection {self.kind} needs an input format with word boundaries")
        is_word_start = starts_unit(word_ids)
        is_word_start[:, 1:] |= batch.is_special[:, 1:]
        column = np.arange(word_ids.shape[1], dtype=word_ids.dtype)
        return [
            np.where(
                is_unspaced(is_word_start, batch.is_special) & (word_ids >= 0), column, word_ids
            )
        ]


class PhraseSelection(WholeWordSelection):
    """All tokens of a phrase or none; outside phrases, all tokens of a word or none.

    Phrases and words are taken in random order, with equal probability, while they fit in the
    budget, which counts tokens; a unit that exceeds the remaining budget is skipped. If more than a
    tenth of the budget remains, whole words of the skipped phrases fill it, then single tokens. If
    a phrase is cut by the end of the sequence, the part inside counts as a phrase.
    """

    kind: Literal["phrases"] = "phrases"  # type: ignore[assignment]

    data_requirements: ClassVar[frozenset[DataRequirement]] = frozenset({"phrases"})
    annotation: ClassVar[Literal["phrase_ids", "entity_ids"]] = "phrase_ids"

    def _unit_levels(self, batch: SequenceBatch) -> list[NDArray[Any]]:
        phrase_ids: Int32Array | None = getattr(batch.token_info, self.annotation)
        [word_ids] = super()._unit_levels(batch)
        if phrase_ids is None:
            raise UserError(
                f"selection {self.kind} needs text with such annotations: prepare it with "
                f"--annotations COLUMN, --phrases FILE or --tagger PIPELINE"
            )
        in_phrase = phrase_ids >= 0
        is_unit_start = starts_unit(phrase_ids) | (~in_phrase & starts_unit(word_ids))
        is_unit_start[:, 1:] |= batch.is_special[:, :-1]
        is_text = word_ids >= 0
        unit_ids = np.cumsum(is_unit_start & is_text, axis=1, dtype=np.int32) - 1
        return [np.where(is_text, unit_ids, np.int32(-1)), word_ids]


class EntitySelection(PhraseSelection):
    """All tokens of a named entity or none; otherwise like phrase selection."""

    kind: Literal["entities"] = "entities"  # type: ignore[assignment]
    annotation: ClassVar[Literal["phrase_ids", "entity_ids"]] = "entity_ids"
