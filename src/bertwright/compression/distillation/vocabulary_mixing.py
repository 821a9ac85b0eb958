"""Sequences in two vocabularies: each word is tokenized in one of them (Zhao et al. 2019).

The ids of the second vocabulary follow the ids of the first.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays, positions_in_document
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng

if TYPE_CHECKING:
    from bertwright.data.tokenization.tokenizer import SpecialTokens

Retokenize = Callable[[tuple[int, ...]], tuple[int, ...] | None]
"""Maps a word's tokens in the second vocabulary to its tokens in the first; None if impossible."""


class VocabularyMixer:
    """A function that turns sequences in the second vocabulary into sequences in both.

    A word keeps its tokens with probability ``keep_probability``, with ids offset by
    ``first_vocab_size``; other words are retokenized in the first vocabulary if possible. Special
    tokens become those of the first vocabulary.
    """

    def __init__(
        self,
        keep_probability: float,
        retokenize: Retokenize,
        first_vocab_size: int,
        first_specials: "SpecialTokens",
        second_specials: "SpecialTokens",
    ) -> None:
        self._keep_probability, self._retokenize = keep_probability, retokenize
        self._first_vocab_size, self._pad_id = first_vocab_size, first_specials.pad
        roles = asdict(first_specials)
        self._special_ids = {
            token_id: roles[role] for role, token_id in asdict(second_specials).items()
        }
        self.reserved = self._special_ids.keys() - {second_specials.unknown}
        """Special tokens of the second vocabulary that a text may contain."""

    def __call__(self, batch: SequenceBatch, rng: CounterRng) -> SequenceBatch:
        """Return sequences of the same shape (B, L); tokens beyond L are truncated."""
        if batch.token_info.word_ids is None:
            raise UserError("mixed vocabularies need word boundaries: choose a tokenizer with them")
        length = batch.token_ids.shape[1]
        keeps = rng.uniform(np.arange(length)) < self._keep_probability
        token_ids = np.full(batch.token_ids.shape, self._pad_id, np.int32)
        source = np.full(batch.token_ids.shape, -1, np.int64)
        for index, units in enumerate(_word_units(batch.token_info.word_ids, batch.is_real)):
            tokens: list[tuple[int, int]] = []
            for start, stop, is_word in units:
                unit = tuple(batch.token_ids[index, start:stop].tolist())
                tokens += self._unit_tokens(unit, start, is_word, bool(keeps[index, start]))
            kept = np.array(tokens[:length], np.int64).reshape(-1, 2)
            token_ids[index, : len(kept)], source[index, : len(kept)] = kept.T
        special = np.where(source < 0, True, np.take_along_axis(batch.is_special, source, axis=1))
        boundary = batch.is_truncation_boundary
        if boundary is not None:
            boundary = np.where(source < 0, False, np.take_along_axis(boundary, source, axis=1))
        return replace(
            batch,
            token_ids=token_ids,
            token_info=_gather_token_info(batch.token_info, source),
            is_special=special,
            is_truncation_boundary=boundary,
        )

    def _unit_tokens(
        self, unit_ids: tuple[int, ...], start: int, is_word: bool, is_kept: bool
    ) -> Iterator[tuple[int, int]]:
        """Yield the tokens of a unit with their source positions: the token's, or its word's."""
        retokenized = self._retokenize(unit_ids) if is_word and not is_kept else None
        if retokenized is not None:
            yield from ((token_id, start) for token_id in retokenized)
            return
        for position, token_id in enumerate(unit_ids, start):
            special_id = None if is_word else self._special_ids.get(token_id)
            yield self._first_vocab_size + token_id if special_id is None else special_id, position


def _word_units(
    word_ids: NDArray[np.int32], is_real: NDArray[np.bool_]
) -> Iterator[list[tuple[int, int, bool]]]:
    """Yield the units of every sequence: (start, stop, is_word) per word and special token."""
    begins = np.ones(word_ids.shape, np.bool_)
    begins[:, 1:] = (word_ids[:, 1:] != word_ids[:, :-1]) | (word_ids[:, 1:] < 0)
    for index in range(len(word_ids)):
        bounds = [*np.flatnonzero(begins[index]).tolist(), word_ids.shape[1]]
        yield [
            (start, stop, bool(word_ids[index, start] >= 0))
            for start, stop in pairwise(bounds)
            if is_real[index, start]
        ]


def _gather_token_info(
    token_info: TokenInfoArrays, source_positions: NDArray[np.int64]
) -> TokenInfoArrays:
    """Return the token info of source positions (B, L), -1 for padding."""
    if token_info.document_ids is None:
        token_info = replace(token_info, document_ids=np.zeros(source_positions.shape, np.int32))
    gathered = token_info.gather(source_positions)
    if gathered.position_ids is None or gathered.document_ids is None:
        return gathered
    return replace(gathered, position_ids=positions_in_document(gathered.document_ids))
