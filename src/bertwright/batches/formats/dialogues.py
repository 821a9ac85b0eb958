"""Consecutive turns of a dialogue, unchanged or with one turn replaced (Sun et al. 2019)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.layout import document_ids_at
from bertwright.batches.formats.arrangement.text_layout import TextLayout, TextSpans
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import (
    RELATIONS,
    DataRequirement,
    Relation,
    SequenceBatch,
)
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters, integers, stream_key, uniform
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class DialogueFormat(InputFormat):
    """[CLS] turn [SEP] turn [SEP] turn [SEP], with ``turns`` consecutive turns.

    If ``length`` has no room for a token of each, there are fewer; a dialogue with fewer turns is
    one sequence. Segment ids are speaker roles: 0 for the first speaker, 1 for all others, so two
    queries and a response are 0 1 0, 0 0 1 or 0 1 1. In a fraction ``fake`` of the sequences, one
    turn after the first is replaced by a random turn of another dialogue. If turns are too long,
    the longest ones lose their last tokens until all fit.
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
        max_turns = min(self.turns, (self.length - 1) // 2)  # a token and [SEP] for each
        number = np.arange(len(starts))
        first = np.searchsorted(document_ids, document_ids)
        next_first = np.searchsorted(document_ids, document_ids, side="right")
        fits = number + max_turns <= next_first
        first_turns = np.flatnonzero(fits | ((number == first) & (next_first - first > 1)))
        if not len(first_turns):
            raise UserError(f"the {split.name} split holds no dialogue of two turns: prepare more")
        num_turns = np.minimum(max_turns, (next_first - number)[first_turns])
        speakers = np.asarray(split.turns.speakers, np.int64)
        rng_key = stream_key(seed, "assembly", "dialogue")
        layout = TextLayout(split, specials, self.length)

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            slot = np.arange(max_turns)
            turns = first_turns[index][:, None] + slot
            is_present = slot < num_turns[index][:, None]
            turns = np.minimum(turns, len(starts) - 1)
            roles = (speakers[turns] != speakers[turns[:, :1]]).astype(np.int64)
            is_fake = uniform(stream_key(rng_key, "fake"), epoch, index) < self.fake
            fake_slot = 1 + integers(
                stream_key(rng_key, "which"), num_turns[index] - 1, epoch, index
            )
            # A turn of another dialogue, or of the same one if there is no other.
            first_same, num_same = (values[turns[:, 0]] for values in (first, next_first - first))
            has_others = num_same < len(starts)
            num_others = np.where(has_others, len(starts) - num_same, len(starts))
            draws = integers(stream_key(rng_key, "turn"), num_others, epoch, index)
            draws = np.where(has_others & (draws >= first_same), draws + num_same, draws)
            is_replaced = is_fake[:, None] & (slot == fake_slot[:, None])
            turns = np.where(is_replaced, draws[:, None], turns)
            lengths = level_lengths(
                np.where(is_present, stops[turns] - starts[turns], 0),
                self.length - 1 - is_present.sum(axis=1),
            )
            real, fake = (RELATIONS.index(name) for name in ("real", "fake"))
            relation = np.where(is_fake, fake, real).astype(np.int64)
            return layout.lay_out(TextSpans(starts[turns], lengths), roles, relation, is_present)

        return SequenceSource(len(first_turns), sequences)


def level_lengths(lengths: IntArray, max_total: IntArray) -> IntArray:
    """Return ``lengths`` (B, k) with the longest ones truncated to a common length, so all fit."""
    sorted_lengths = np.sort(lengths, axis=1)
    shorter_total = np.cumsum(sorted_lengths, axis=1) - sorted_lengths
    num_left = lengths.shape[1] - np.arange(lengths.shape[1])
    level = ((max_total[:, None] - shorter_total) // num_left).max(axis=1, keepdims=True)
    return np.minimum(lengths, level)
