"""Turns of a dialogue, real or with one that does not belong (Sun et al. 2019)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.assembly.layout import annotated, document_at, languages_of
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import RELATIONS, Coordinates, Need, Relation, Rows
from bertwright.randomness import Counters, integers, key, uniform
from bertwright.text.marks import SENTENCE_START, WORD_START

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class Dialogue(Assembly):
    """[CLS] turn [SEP] turn [SEP] turn [SEP]: ``turns`` of them that follow each other, or all of a
    shorter dialogue.

    The segment of a place is the role of who speaks: 0 for the one who speaks first, 1 for others,
    so two queries and a response are 0 1 0, 0 0 1 or 0 1 1 as they come. In a share of the rows,
    ``fake``, one turn but the first is a random one of another dialogue. Of turns that are too long
    the longest lose their last pieces until all fit.
    """

    kind: Literal["dialogue"] = "dialogue"
    turns: int = Field(default=3, ge=2, le=8)
    fake: float = Field(default=0.5, ge=0.0, le=1.0)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"dialogues"})

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset({"real", "fake"})

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        if split.turns is None or not len(split.turns.starts):
            raise UserError(
                f"the {split.name} split holds no dialogues: prepare some with --dialogues FILE"
            )
        starts = np.asarray(split.turns.starts, np.int64)
        document = document_at(split, starts)
        stops = np.minimum(
            np.append(starts[1:], split.num_pieces), np.asarray(split.document_starts)[document + 1]
        )
        number = np.arange(len(starts))
        first = np.searchsorted(document, document)
        after = np.searchsorted(document, document, side="right")
        whole = number + self.turns <= after
        begins = np.flatnonzero(whole | ((number == first) & (after - first > 1)))
        if not len(begins):
            raise UserError(f"the {split.name} split holds no dialogue of two turns: prepare more")
        counts = np.minimum(self.turns, (after - number)[begins])
        speakers = np.asarray(split.turns.speakers, np.int64)
        of = key(seed, "assembly", "dialogue")
        return _DialogueRows(
            self, split, specials, starts, stops, document, speakers, begins, counts, of
        )


@dataclass(frozen=True, slots=True, eq=False)
class _DialogueRows:
    """``starts``, ``stops``, ``document``, ``speakers`` (T,) of every turn; ``begins``, ``counts``
    (R,): the first turn of each row, and how many it has."""

    assembly: Dialogue
    split: "Split"
    specials: "Specials"
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    document: NDArray[np.int64]
    speakers: NDArray[np.int64]
    begins: NDArray[np.int64]
    counts: NDArray[np.int64]
    of: int

    @property
    def num_rows(self) -> int:
        return len(self.begins)

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        slot = np.arange(self.assembly.turns)
        turn = self.begins[index][:, None] + slot
        there = slot < self.counts[index][:, None]
        turn = np.minimum(turn, len(self.starts) - 1)
        role = (self.speakers[turn] != self.speakers[turn[:, :1]]).astype(np.int32)
        is_fake = uniform(key(self.of, "fake"), epoch, index) < self.assembly.fake
        which = 1 + integers(key(self.of, "which"), self.counts[index] - 1, epoch, index)
        other = self._of_another(turn[:, 0], index, epoch)
        turn = np.where(is_fake[:, None] & (slot == which[:, None]), other[:, None], turn)
        real, fake = (RELATIONS.index(name) for name in ("real", "fake"))
        return self._lay_out(turn, there, role, np.where(is_fake, fake, real).astype(np.int64))

    def _of_another(
        self, turn: NDArray[np.int64], index: NDArray[np.int64], epoch: Counters
    ) -> NDArray[np.int64]:
        """A random turn of another dialogue; of the same one where there is no other."""
        first = np.searchsorted(self.document, self.document[turn])
        own = np.searchsorted(self.document, self.document[turn], side="right") - first
        number = len(self.starts)
        others = np.where(own < number, number - own, number)
        drawn = integers(key(self.of, "turn"), others, epoch, index)
        return np.where((own < number) & (drawn >= first), drawn + own, drawn)

    def _lay_out(
        self,
        turn: NDArray[np.int64],
        there: NDArray[np.bool_],
        role: NDArray[np.int32],
        relation: NDArray[np.int64],
    ) -> Rows:
        length = self.assembly.length
        room = length - 1 - there.sum(axis=1)
        sizes = leveled(np.where(there, self.stops[turn] - self.starts[turn], 0), room)
        shape, place = (len(turn), length), np.arange(length)
        source = np.full(shape, -1, np.int64)
        segment = np.zeros(shape, np.int32)
        begin = np.ones((len(turn), 1), np.int64)
        begins = np.zeros(shape, np.bool_)
        for n in range(self.assembly.turns):
            end = begin + sizes[:, n : n + 1]
            within = there[:, n : n + 1] & (place >= begin) & (place <= end)
            segment[within] = np.broadcast_to(role[:, n : n + 1], shape)[within]
            inside = within & (place < end)
            source[inside] = (self.starts[turn[:, n]][:, None] + place - begin)[inside]
            begins |= inside & (place == begin)
            begin = end + there[:, n : n + 1]
        text, is_real = source >= 0, place < begin
        pieces, marks = (
            found.reshape(shape) for found in self.split.gather(np.maximum(source, 0).ravel(), 1)
        )
        shown = np.where(text, pieces, np.int32(self.specials.end))
        shown[:, 0] = self.specials.start
        shown[~is_real] = self.specials.pad
        word, sentence = (
            np.where(text, np.cumsum(text & (begins | (marks & mark != 0)), axis=1) - 1, -1)
            for mark in (WORD_START, SENTENCE_START)
        )
        language = None
        if self.split.languages is not None:
            spoken = languages_of(self.split, self.document[turn[:, 0]])
            language = np.broadcast_to(spoken[:, None], shape).copy()
        coordinates = Coordinates(
            segment=segment,
            document=np.where(is_real, np.int32(0), np.int32(-1)),
            word=word.astype(np.int32),
            sentence=sentence.astype(np.int32),
            language=language,
        )
        return Rows(shown, annotated(coordinates, self.split, source), ~text, relation)


def leveled(sizes: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """What is left of ``sizes`` (B, k) when the longest of each row are cut to one length until all
    fit in ``room`` (B,)."""
    rising = np.sort(sizes, axis=1)
    shorter = np.cumsum(rising, axis=1) - rising
    left = sizes.shape[1] - np.arange(sizes.shape[1])
    level = ((room[:, None] - shorter) // left).max(axis=1, keepdims=True)
    return np.minimum(sizes, level)
