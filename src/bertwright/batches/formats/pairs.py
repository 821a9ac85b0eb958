"""Pairs of texts: next, previous or random (Devlin et al. 2019).

A chunk of whole sentences is split at a sentence boundary into A and the true B. In some sequences
A and B are swapped (Lan et al. 2020). In others, and whenever the chunk is a single sentence, B is
replaced by a random text of another document (of the same one if there is no other), long enough to
fill the sequence. Then the longer text is truncated, token by token at either end, until both fit.

Two deviations from BERT make sequence i of epoch e a pure function of (seed, e, i). First, chunks
are the same in every epoch, and the true B that a random B replaces is not used for the next chunk;
as splits and random texts are redrawn in every epoch, another epoch uses it. Second, a sentence
longer than a sequence is split into parts that count as sentences, so no text is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.formats.arrangement.chunks import (
    SentenceUnits,
    chunk_starts,
    split_long_sentences,
)
from bertwright.batches.formats.arrangement.text_layout import (
    TextLayout,
    TextSpans,
    truncate_longest_first,
)
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import RELATIONS, Relation, SequenceBatch
from bertwright.core.rng import Counters, integers, random_bits, stream_key, uniform
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class TextPair(InputFormat):
    """[CLS] A [SEP] B [SEP]; ``separators`` is the number of [SEP] between A and B (RoBERTa: 2).

    ``second`` is the fraction of each relation of B to A. BERT has half ``next`` and half
    ``random``; ALBERT ``next`` and ``previous``; ERNIE 2.0 ``next``, ``same-document`` and
    ``random``. If a document is a single chunk, B is random instead of ``same-document``.
    """

    separators: Literal[1, 2] = 1
    second: dict[Relation, float] = Field(default={"next": 0.5, "random": 0.5})

    @field_validator("second")
    @classmethod
    def _check_fractions(cls, second: dict[Relation, float]) -> dict[Relation, float]:
        if not second.keys() <= {"next", "random", "previous", "same-document"}:
            raise ValueError("may be next, random, previous or same-document")
        if min(second.values(), default=-1.0) < 0 or abs(sum(second.values()) - 1.0) > 1e-6:
            raise ValueError("must hold fractions that sum to 1, e.g. {next: 0.5, random: 0.5}")
        return second

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset(self.second)

    def text_layout(self, split: Split, specials: SpecialTokens) -> TextLayout:
        """Return the layout of the pairs."""
        return TextLayout(split, specials, self.length, self.separators)


class SegmentPair(TextPair):
    """Chunks that fill a sequence, or sometimes less (BERT, RoBERTa's SEGMENT-PAIR).

    With probability ``short`` the chunks of a document fill only a random length of at least 2
    tokens, one for all of them.
    """

    kind: Literal["segment-pair"] = "segment-pair"
    short: float = Field(default=0.1, ge=0.0, le=1.0)

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        layout = self.text_layout(split, specials)
        units = split_long_sentences(split, layout.max_pair_tokens)
        rng_key, next_documents = (
            stream_key(seed, "assembly", self.kind),
            units.next_document_start(),
        )
        is_short = uniform(stream_key(rng_key, "short"), next_documents) < self.short
        short_lengths = 2 + integers(
            stream_key(rng_key, "length"), layout.max_pair_tokens - 1, next_documents
        )
        target_lengths = np.where(is_short, short_lengths, layout.max_pair_tokens)
        next_units = np.searchsorted(units.stops, units.starts + target_lengths) + 1
        first = chunk_starts(np.minimum(next_units, next_documents))
        return _plan_pairs(layout, self.second, units, first, target_lengths, rng_key)


class SentencePair(TextPair):
    """Two natural sentences of any length (RoBERTa's SENTENCE-PAIR)."""

    kind: Literal["sentence-pair"] = "sentence-pair"

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        layout = self.text_layout(split, specials)
        units = split_long_sentences(split, layout.max_pair_tokens)
        rng_key, unit = stream_key(seed, "assembly", self.kind), np.arange(len(units.starts))
        first = chunk_starts(np.minimum(unit + 2, units.next_document_start()))
        target_lengths = np.zeros_like(unit)  # a random B is one sentence, too
        return _plan_pairs(layout, self.second, units, first, target_lengths, rng_key)


def _plan_pairs(
    layout: TextLayout,
    fractions: Mapping[Relation, float],
    units: SentenceUnits,
    first_units: IntArray,
    target_lengths: IntArray,
    rng_key: int,
) -> SequenceSource:
    """Return the pairs from chunks that begin at ``first_units`` (C,)."""
    starts = np.append(first_units, len(units.starts))
    sampler = _PairSampler(layout, fractions, units, starts, target_lengths, rng_key)
    return SequenceSource(len(first_units), sampler.sequences)


@dataclass(frozen=True, slots=True, eq=False)
class _PairSampler:
    """A sampler of pairs from chunks that fill the ``target_lengths`` (U,) of their first unit.

    ``chunk_starts`` (C + 1,) are indices of units; lengths are in tokens.
    """

    layout: TextLayout
    relation_fractions: Mapping[Relation, float]
    units: SentenceUnits
    chunk_starts: IntArray
    target_lengths: IntArray
    rng_key: int

    def sequences(self, index: IntArray, epoch: Counters) -> SequenceBatch:
        first_texts, second_texts, relation = self._sample_pair(index, epoch)
        first_lengths, second_lengths = truncate_longest_first(
            first_texts.lengths, second_texts.lengths, self.layout.max_pair_tokens
        )
        first_key = stream_key(self.rng_key, "front of A")
        second_key = stream_key(self.rng_key, "front of B")
        first_texts = _cut(first_texts, first_lengths, first_key, index, epoch)
        second_texts = _cut(second_texts, second_lengths, second_key, index, epoch)
        return self.layout.lay_out_pairs(first_texts, second_texts, relation)

    def _sample_pair(
        self, index: IntArray, epoch: Counters
    ) -> tuple[TextSpans, TextSpans, IntArray]:
        """Return A, B and their relation, before truncation."""
        starts, stops = self.units.starts, self.units.stops
        first, last = self.chunk_starts[index], self.chunk_starts[index + 1] - 1
        num_units = last - first + 1
        split = integers(
            stream_key(self.rng_key, "part"), np.maximum(num_units - 1, 1), epoch, index
        )
        first_text_end = first + split
        first_length = stops[first_text_end] - starts[first]
        relation = self._sample_relation(index, epoch)
        is_same_document = (relation == RELATIONS.index("same-document")) & (num_units > 1)
        same_first, same_last, exists = self._text_from_same_document(
            first, last, self.target_lengths[first] - first_length, index, epoch
        )
        must_be_random = (num_units == 1) | (is_same_document & ~exists)
        relation = np.where(must_be_random, RELATIONS.index("random"), relation)
        is_random = relation == RELATIONS.index("random")

        random_first, random_last = self._text_from_other_document(
            first, self.target_lengths[first] - first_length, index, epoch
        )
        second_first = np.where(is_random, random_first, np.minimum(first_text_end + 1, last))
        second_last = np.where(is_random, random_last, last)
        is_same_document &= exists
        second_first = np.where(is_same_document, same_first, second_first)
        second_last = np.where(is_same_document, same_last, second_last)
        first_text = TextSpans(starts[first], first_length)
        second_text = TextSpans(starts[second_first], stops[second_last] - starts[second_first])
        is_previous = relation == RELATIONS.index("previous")
        return (
            first_text.where(~is_previous, second_text),
            second_text.where(~is_previous, first_text),
            relation,
        )

    def _sample_relation(self, index: IntArray, epoch: Counters) -> IntArray:
        """Draw the relation of each sequence, an index into ``RELATIONS``."""
        relation_ids = np.array(
            [n for n, name in enumerate(RELATIONS) if self.relation_fractions.get(name)]
        )
        fractions = np.array([self.relation_fractions[RELATIONS[n]] for n in relation_ids.tolist()])
        draws = 1.0 - uniform(stream_key(self.rng_key, "relation"), epoch, index)
        return relation_ids[np.searchsorted(np.cumsum(fractions)[:-1], draws, side="left")]

    def _text_from_other_document(
        self, unit_ids: IntArray, min_lengths: IntArray, index: IntArray, epoch: Counters
    ) -> tuple[IntArray, IntArray]:
        """Return the first and last unit of a random text of another document.

        A text has at least ``min_lengths`` tokens unless its document ends first.
        """
        num_documents = self.layout.split.num_documents
        step = 1 + integers(
            stream_key(self.rng_key, "document"), max(num_documents - 1, 1), epoch, index
        )
        document_ids = (self.units.document_ids[unit_ids] + step) % num_documents
        begin = np.searchsorted(self.units.document_ids, document_ids)
        end = np.searchsorted(self.units.document_ids, document_ids, side="right")
        first = begin + integers(stream_key(self.rng_key, "sentence"), end - begin, epoch, index)
        target_stops = self.units.starts[first] + np.maximum(min_lengths, 1)
        return first, np.minimum(np.searchsorted(self.units.stops, target_stops), end - 1)

    def _text_from_same_document(
        self,
        first_units: IntArray,
        last_units: IntArray,
        min_lengths: IntArray,
        index: IntArray,
        epoch: Counters,
    ) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the first and last unit of a random text of the same document outside the chunk.

        The third array says whether there is such a text.
        """
        document_ids = self.units.document_ids[first_units]
        begin = np.searchsorted(self.units.document_ids, document_ids)
        end = np.searchsorted(self.units.document_ids, document_ids, side="right")
        chunk_size = last_units - first_units + 1
        num_others = end - begin - chunk_size
        rng_key = stream_key(self.rng_key, "same document")
        units = begin + integers(rng_key, np.maximum(num_others, 1), epoch, index)
        is_behind = units >= first_units
        units = np.minimum(units + np.where(is_behind, chunk_size, 0), end - 1)
        target_stops = self.units.starts[units] + np.maximum(min_lengths, 1)
        last_allowed = np.where(is_behind, end, first_units) - 1
        last_unit = np.minimum(np.searchsorted(self.units.stops, target_stops), last_allowed)
        return units, np.maximum(last_unit, units), num_others > 0


def _cut(
    texts: TextSpans, lengths: IntArray, rng_key: int, index: IntArray, epoch: Counters
) -> TextSpans:
    """Truncate texts to ``lengths``, removing each token at a random end."""
    num_cut_in_front = _count_heads(texts.lengths - lengths, rng_key, epoch, index)
    return TextSpans(texts.starts + num_cut_in_front, lengths)


def _count_heads(num_tosses: IntArray, rng_key: int, epoch: Counters, index: IntArray) -> IntArray:
    """Draw the number of heads among ``num_tosses`` (B,) fair coin tosses."""
    num_words = int(num_tosses.max(initial=0)) // 64 + 1
    word = np.arange(num_words)
    bits = random_bits(rng_key, np.reshape(epoch, (-1, 1)), index[:, None], word)
    tosses = np.unpackbits(bits.astype("<u8").view(np.uint8), axis=1)
    is_tossed = np.arange(64 * num_words) < num_tosses[:, None]
    return (tosses & is_tossed).sum(axis=1, dtype=np.int64)
