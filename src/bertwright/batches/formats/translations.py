"""Pairs of translations, for translation language modelling (Lample and Conneau 2019)."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.chunks import chunk_starts
from bertwright.batches.formats.arrangement.layout import language_ids_of
from bertwright.batches.formats.arrangement.text_layout import read_text, truncate_longest_first
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class TranslationPair(InputFormat):
    """[CLS] A [SEP] [CLS] B [SEP], where B translates A.

    Each side has its own language id, special tokens included, and its positions count from 0;
    without ``restart`` they continue across the pair. If a pair is too long, the longer side loses
    its last tokens until both fit. The rest of a sequence is padding, which is a lot if the sides
    are sentences; ``packing`` instead puts consecutive pairs into one sequence while they fit,
    isolated from each other. XLM uses one delimiter for both [CLS] and [SEP], and a sequence for
    each pair.
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
        side_lengths = np.stack(text_lengths, axis=1)

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            return self._lay_out(
                split, specials, second_documents, side_lengths, bounds[index], bounds[index + 1]
            )

        return SequenceSource(len(bounds) - 1, sequences)

    def _lay_out(
        self,
        split: Split,
        specials: SpecialTokens,
        second_documents: IntArray,
        side_lengths: IntArray,
        first_pairs: IntArray,
        end_pairs: IntArray,
    ) -> SequenceBatch:
        """Return sequences that each hold the pairs [``first_pairs``, ``end_pairs``), (B,) each.

        ``second_documents`` (P,) and ``side_lengths`` (P, 2) describe all pairs.
        """
        # First one entry for every side of every pair of every sequence, then one for every token
        # of a side.
        sequence_ids, pair = _expand_ranges(first_pairs, end_pairs)
        document_ids = np.stack([second_documents[pair] - 1, second_documents[pair]], axis=1)
        document_ids = document_ids.ravel()
        sequence_ids, num_tokens = np.repeat(sequence_ids, 2), side_lengths[pair].ravel()
        side_starts = _cumsum_within_sequence(num_tokens + 2, sequence_ids)
        side, offsets = _expand_ranges(np.zeros_like(num_tokens), num_tokens + 2)
        positions, token_sequences = side_starts[side] + offsets, sequence_ids[side]
        is_text = (offsets > 0) & (offsets <= num_tokens[side])
        pair_numbers = _cumsum_within_sequence(np.arange(len(sequence_ids)) % 2, sequence_ids)[side]

        def to_grid(values: NDArray[Any], fill: int) -> IntArray:
            grid = np.full((len(first_pairs), self.length), fill, np.int64)
            grid[token_sequences, positions] = values
            return grid

        text_positions = split.document_starts[document_ids[side]] + offsets - 1
        stream_positions = to_grid(np.where(is_text, text_positions, -1), -1)
        tokens, token_info = read_text(split, stream_positions, to_grid(offsets == 1, 0) > 0)
        delimiters = to_grid(np.where(offsets == 0, specials.start, specials.end), specials.pad)
        is_special = stream_positions < 0
        pair_positions = offsets if self.restart else positions - side_starts[side - side % 2]
        language_ids = None
        if split.language_ids is not None:
            language_ids = to_grid(language_ids_of(split, document_ids)[side], 0).astype(np.int32)
        token_info = replace(
            token_info,
            position_ids=to_grid(pair_positions, 0).astype(np.int32),
            document_ids=to_grid(pair_numbers, -1).astype(np.int32),
            language_ids=language_ids,
        )
        token_ids = np.where(is_special, delimiters, tokens).astype(np.int32)
        return SequenceBatch(token_ids, token_info, is_special)


def _expand_ranges(starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    """Return the concatenated members of all ranges, preceded by the range index of each member."""
    sizes = stops - starts
    which = np.repeat(np.arange(len(sizes)), sizes)
    return which, np.arange(len(which)) - (np.cumsum(sizes) - sizes)[which] + starts[which]


def _cumsum_within_sequence(values: IntArray, sequence_ids: IntArray) -> IntArray:
    """Return the exclusive cumulative sum within each sequence; ``sequence_ids`` are sorted."""
    exclusive = np.cumsum(values) - values
    return exclusive - exclusive[np.searchsorted(sequence_ids, sequence_ids)]
