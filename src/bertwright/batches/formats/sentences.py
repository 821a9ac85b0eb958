"""Whole sentences (Liu et al. 2019, section 4.2): FULL-SENTENCES and DOC-SENTENCES.

The cuts are the same in every epoch, and every token is used once per epoch. A sentence longer than
a sequence is split where the sequence ends.
"""

from typing import Literal

import numpy as np

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.chunks import chunk_starts, split_long_sentences
from bertwright.batches.formats.arrangement.layout import SequenceLayout
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class FullSentences(InputFormat):
    """As many whole sentences as fit, across documents, with a [SEP] between documents.

    All tokens of a sequence attend to each other. The rest of a sequence is padding.
    """

    kind: Literal["full-sentences"] = "full-sentences"

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        layout = SequenceLayout(split, specials, self.length, isolated=False)
        units = split_long_sentences(split, layout.max_text_tokens)
        num_separators = len(layout.separator_ids) * units.document_ids
        next_unit = _next_unit_greedy(
            units.starts + num_separators, units.stops + num_separators, layout.max_text_tokens
        )
        return _plan_bounds(layout, _bounds(units.starts[chunk_starts(next_unit)], split))


class DocSentences(InputFormat):
    """As many whole sentences as fit, up to the end of the document.

    The rest of a sequence is padding, which is a lot if documents are short. ``packing`` instead
    puts consecutive texts into one sequence while they fit (next-fit), isolated from each other.
    """

    kind: Literal["doc-sentences"] = "doc-sentences"
    packing: bool = False

    @property
    def isolation_setting(self) -> str | None:
        return "packing" if self.packing else None

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        layout = SequenceLayout(split, specials, self.length, isolated=True)
        units = split_long_sentences(split, layout.max_text_tokens)
        next_unit = _next_unit_greedy(units.starts, units.stops, layout.max_text_tokens)
        starts = units.starts[chunk_starts(np.minimum(next_unit, units.next_document_start()))]
        bounds = _bounds(starts, split)
        if self.packing:
            # Two texts of one document never fit in one sequence, so a sequence has separators
            # exactly where documents end.
            num_separators = len(layout.separator_ids) * np.arange(len(starts))
            next_start = _next_unit_greedy(
                bounds[:-1] + num_separators, bounds[1:] + num_separators, layout.max_text_tokens
            )
            bounds = _bounds(starts[chunk_starts(next_start)], split)
        return _plan_bounds(layout, bounds)


def _next_unit_greedy(starts: IntArray, stops: IntArray, max_tokens: int) -> IntArray:
    """Return for each unit the first one that no longer fits in a sequence that it begins, (U,)."""
    return np.searchsorted(stops, starts + max_tokens, side="right")


def _bounds(starts: IntArray, split: Split) -> IntArray:
    return np.append(starts, split.num_tokens)


def _plan_bounds(layout: SequenceLayout, bounds: IntArray) -> SequenceSource:
    """Return the sequences between consecutive stream positions ``bounds`` (R + 1,)."""

    def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
        starts = bounds[index]
        return layout.lay_out(starts, bounds[index + 1] - starts)

    return SequenceSource(len(bounds) - 1, sequences)
