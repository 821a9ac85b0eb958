"""Pairs of translations, for translation language modelling (Lample and Conneau 2019)."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import Int32Array, IntArray
from bertwright.batches.formats.chunks import chunk_starts
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.formats.layout import add_annotations, language_ids_of
from bertwright.batches.formats.pair_layout import truncate_longest_first
from bertwright.batches.token_info import DataRequirement, SequenceBatch, TokenInfoArrays
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens


class TranslationPair(InputFormat):
    """[CLS] A [SEP] [CLS] B [SEP], where B translates A.

    Each side has its language id, special tokens included, and its positions count from 0 (without
    ``restart``, they continue across the pair). In a pair that is too long, the longer side loses
    its last tokens until both fit. ``packing`` puts consecutive pairs into one sequence while they
    fit, isolated from each other; otherwise the rest is padding, which is a lot where the sides are
    sentences. XLM uses one delimiter for both [CLS] and [SEP], and a sequence for each pair.
    """

    kind: Literal["translation-pair"] = "translation-pair"
    restart: bool = True
    packing: bool = False

    @property
    def isolation_setting(self) -> str | None:
        return "packing" if self.packing else None

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return frozenset({"translations"})

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        second_documents = np.asarray(split.translations, np.int64)
        if not len(second_documents):
            raise UserError(
                f"the {split.name} split holds no translations: prepare some, as en,de=FILE,FILE"
            )
        sizes = np.diff(split.document_starts)
        text_lengths = truncate_longest_first(
            sizes[second_documents - 1], sizes[second_documents], self.length - 4
        )
        stops = np.cumsum(text_lengths[0] + text_lengths[1] + 4)
        starts = np.append(0, stops[:-1])
        first_pairs = np.arange(len(second_documents))
        if self.packing:
            first_pairs = chunk_starts(np.searchsorted(stops, starts + self.length, side="right"))
        bounds = np.append(first_pairs, len(second_documents))
        return _TranslationSource(
            self, split, specials, second_documents, np.stack(text_lengths, axis=1), bounds
        )


@dataclass(frozen=True, slots=True, eq=False)
class _TranslationSource:
    """The second document (P,) and text lengths (P, 2) of each pair, and ``bounds`` (R + 1,).

    ``bounds`` is the first pair of each sequence.
    """

    input_format: TranslationPair
    split: Split
    specials: SpecialTokens
    second_document_ids: IntArray
    text_lengths: IntArray
    bounds: IntArray

    @property
    def num_sequences(self) -> int:
        return len(self.bounds) - 1

    def sequences(self, index: IntArray, epoch: Counters) -> SequenceBatch:
        # One entry for every side of every pair of every sequence, then one for every token of a
        # side.
        sequence_ids, pair = _expand_ranges(self.bounds[index], self.bounds[index + 1])
        document_ids = np.stack(
            [self.second_document_ids[pair] - 1, self.second_document_ids[pair]], axis=1
        ).ravel()
        sequence_ids, num_tokens = np.repeat(sequence_ids, 2), self.text_lengths[pair].ravel()
        side_starts = _cumsum_within_sequence(num_tokens + 2, sequence_ids)
        side, offsets = _expand_ranges(np.zeros_like(num_tokens), num_tokens + 2)
        positions, token_sequences = side_starts[side] + offsets, sequence_ids[side]
        is_text = (offsets > 0) & (offsets <= num_tokens[side])

        stream_positions = self.split.document_starts[document_ids[side]] + np.maximum(
            offsets - 1, 0
        )
        stream_positions = np.minimum(stream_positions, self.split.num_tokens - 1)
        tokens, boundaries = (values[:, 0] for values in self.split.gather(stream_positions, 1))
        delimiters = np.where(offsets == 0, self.specials.start, self.specials.end)

        shape = (len(index), self.input_format.length)

        def to_grid(values: NDArray[Any], fill: int) -> Int32Array:
            grid = np.full(shape, fill, np.int32)
            grid[token_sequences, positions] = values
            return grid

        def unit_ids(flag: int) -> Int32Array:
            starts = is_text & ((offsets == 1) | (boundaries & flag != 0))
            unit = _cumsum_within_sequence(starts.astype(np.int64), token_sequences) + starts - 1
            return to_grid(np.where(is_text, unit, -1), -1)

        pair_numbers = _cumsum_within_sequence(np.arange(len(sequence_ids)) % 2, sequence_ids)[side]
        position_ids = (
            offsets if self.input_format.restart else positions - side_starts[side - side % 2]
        )
        language_ids = None
        if self.split.language_ids is not None:
            language_ids = to_grid(language_ids_of(self.split, document_ids)[side], 0)
        token_info = TokenInfoArrays(
            position_ids=to_grid(position_ids, 0),
            document_ids=to_grid(pair_numbers, -1),
            word_ids=unit_ids(WORD_START),
            sentence_ids=unit_ids(SENTENCE_START),
            language_ids=language_ids,
        )
        text_positions = np.full(shape, -1, np.int64)
        text_positions[token_sequences, positions] = np.where(is_text, stream_positions, -1)
        token_info = add_annotations(token_info, self.split, text_positions)
        is_special = to_grid(~is_text, 1) > 0
        return SequenceBatch(
            to_grid(np.where(is_text, tokens, delimiters), self.specials.pad),
            token_info,
            is_special,
        )


def _expand_ranges(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    """Return the range that each member belongs to, and the members, range by range."""
    sizes = stops - starts
    which = np.repeat(np.arange(len(sizes)), sizes)
    return which, np.arange(len(which)) - (np.cumsum(sizes) - sizes)[which] + starts[which]


def _cumsum_within_sequence(values: IntArray, sequence_ids: IntArray) -> IntArray:
    """Return the exclusive cumulative sum within each sequence; ``sequence_ids`` are sorted."""
    exclusive = np.cumsum(values) - values
    return exclusive - exclusive[np.searchsorted(sequence_ids, sequence_ids)]
