"""Consecutive turns of a dialogue, real or with one replaced (Sun et al. 2019)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.formats.layout import add_annotations, document_ids_at, language_ids_of
from bertwright.batches.token_info import (
    RELATIONS,
    DataRequirement,
    Relation,
    SequenceBatch,
    TokenInfoArrays,
)
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters, integers, stream_key, uniform
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens


class DialogueFormat(InputFormat):
    """[CLS] turn [SEP] turn [SEP] turn [SEP], with ``turns`` consecutive turns.

    A shorter dialogue is one sequence. Segment ids are speaker roles: 0 for the first speaker, 1
    for others, so two queries and a response are 0 1 0, 0 0 1 or 0 1 1. In a fraction ``fake`` of
    the sequences, one turn but the first is a random one of another dialogue. If turns are too
    long, the longest lose their last tokens until all fit.
    """

    kind: Literal["dialogue"] = "dialogue"
    turns: int = Field(default=3, ge=2, le=8)
    fake: float = Field(default=0.5, ge=0.0, le=1.0)

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return frozenset({"dialogues"})

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset({"real", "fake"})

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        if split.turns is None or not len(split.turns.starts):
            raise UserError(
                f"the {split.name} split holds no dialogues: prepare some with --dialogues FILE"
            )
        starts = np.asarray(split.turns.starts, np.int64)
        document_ids = document_ids_at(split, starts)
        stops = np.minimum(
            np.append(starts[1:], split.num_tokens),
            np.asarray(split.document_starts)[document_ids + 1],
        )
        number = np.arange(len(starts))
        first = np.searchsorted(document_ids, document_ids)
        next_first = np.searchsorted(document_ids, document_ids, side="right")
        fits = number + self.turns <= next_first
        first_turns = np.flatnonzero(fits | ((number == first) & (next_first - first > 1)))
        if not len(first_turns):
            raise UserError(f"the {split.name} split holds no dialogue of two turns: prepare more")
        num_turns = np.minimum(self.turns, (next_first - number)[first_turns])
        speakers = np.asarray(split.turns.speakers, np.int64)
        rng_key = stream_key(seed, "assembly", "dialogue")
        return _DialogueSource(
            self,
            split,
            specials,
            starts,
            stops,
            document_ids,
            speakers,
            first_turns,
            num_turns,
            rng_key,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _DialogueSource:
    """Arrays of every turn, (T,), and the first turn and number of turns of each sequence, (R,)."""

    input_format: DialogueFormat
    split: Split
    specials: SpecialTokens
    starts: IntArray
    stops: IntArray
    document_ids: IntArray
    speakers: IntArray
    first_turns: IntArray
    num_turns: IntArray
    rng_key: int

    @property
    def num_sequences(self) -> int:
        return len(self.first_turns)

    def sequences(self, index: IntArray, epoch: Counters) -> SequenceBatch:
        slot = np.arange(self.input_format.turns)
        turns = self.first_turns[index][:, None] + slot
        is_present = slot < self.num_turns[index][:, None]
        turns = np.minimum(turns, len(self.starts) - 1)
        roles = (self.speakers[turns] != self.speakers[turns[:, :1]]).astype(np.int32)
        is_fake = uniform(stream_key(self.rng_key, "fake"), epoch, index) < self.input_format.fake
        fake_slot = 1 + integers(
            stream_key(self.rng_key, "which"), self.num_turns[index] - 1, epoch, index
        )
        fake_turns = self._turn_of_other_dialogue(turns[:, 0], index, epoch)
        turns = np.where(
            is_fake[:, None] & (slot == fake_slot[:, None]), fake_turns[:, None], turns
        )
        real, fake = (RELATIONS.index(name) for name in ("real", "fake"))
        return self._lay_out(
            turns, is_present, roles, np.where(is_fake, fake, real).astype(np.int64)
        )

    def _turn_of_other_dialogue(
        self, turns: IntArray, index: IntArray, epoch: Counters
    ) -> IntArray:
        """Draw a turn of another dialogue; of the same one if there is no other."""
        first = np.searchsorted(self.document_ids, self.document_ids[turns])
        num_same = (
            np.searchsorted(self.document_ids, self.document_ids[turns], side="right") - first
        )
        num_turns = len(self.starts)
        num_others = np.where(num_same < num_turns, num_turns - num_same, num_turns)
        draws = integers(stream_key(self.rng_key, "turn"), num_others, epoch, index)
        return np.where((num_same < num_turns) & (draws >= first), draws + num_same, draws)

    def _lay_out(
        self, turns: IntArray, is_present: BoolArray, speaker_roles: Int32Array, relation: IntArray
    ) -> SequenceBatch:
        length = self.input_format.length
        max_total = length - 1 - is_present.sum(axis=1)
        lengths = level_lengths(
            np.where(is_present, self.stops[turns] - self.starts[turns], 0), max_total
        )
        shape, positions = (len(turns), length), np.arange(length)
        stream_positions = np.full(shape, -1, np.int64)
        segment_ids = np.zeros(shape, np.int32)
        document_ids = np.broadcast_to(self.document_ids[turns[:, :1]], shape).copy()
        begin = np.ones((len(turns), 1), np.int64)
        turn_starts = np.zeros(shape, np.bool_)
        for n in range(self.input_format.turns):
            end = begin + lengths[:, n : n + 1]
            in_turn = is_present[:, n : n + 1] & (positions >= begin) & (positions <= end)
            segment_ids[in_turn] = np.broadcast_to(speaker_roles[:, n : n + 1], shape)[in_turn]
            document_ids[in_turn] = np.broadcast_to(self.document_ids[turns[:, n : n + 1]], shape)[
                in_turn
            ]
            is_inside = in_turn & (positions < end)
            stream_positions[is_inside] = (self.starts[turns[:, n]][:, None] + positions - begin)[
                is_inside
            ]
            turn_starts |= is_inside & (positions == begin)
            begin = end + is_present[:, n : n + 1]
        is_text, is_real = stream_positions >= 0, positions < begin
        tokens, boundaries = (
            values.reshape(shape)
            for values in self.split.gather(np.maximum(stream_positions, 0).ravel(), 1)
        )
        token_ids = np.where(is_text, tokens, np.int32(self.specials.end))
        token_ids[:, 0] = self.specials.start
        token_ids[~is_real] = self.specials.pad
        word_ids, sentence_ids = (
            np.where(
                is_text,
                np.cumsum(is_text & (turn_starts | (boundaries & flag != 0)), axis=1) - 1,
                -1,
            )
            for flag in (WORD_START, SENTENCE_START)
        )
        has_languages = self.split.language_ids is not None
        token_info = TokenInfoArrays(
            segment_ids=segment_ids,
            document_ids=np.where(is_real, np.int32(0), np.int32(-1)),
            word_ids=word_ids.astype(np.int32),
            sentence_ids=sentence_ids.astype(np.int32),
            language_ids=language_ids_of(self.split, document_ids) if has_languages else None,
        )
        return SequenceBatch(
            token_ids, add_annotations(token_info, self.split, stream_positions), ~is_text, relation
        )


def level_lengths(lengths: IntArray, max_total: IntArray) -> IntArray:
    """Return ``lengths`` (B, k), the longest truncated to a common length so that all fit."""
    sorted_lengths = np.sort(lengths, axis=1)
    shorter_total = np.cumsum(sorted_lengths, axis=1) - sorted_lengths
    num_left = lengths.shape[1] - np.arange(lengths.shape[1])
    level = ((max_total[:, None] - shorter_total) // num_left).max(axis=1, keepdims=True)
    return np.minimum(lengths, level)
