"""Pairs of texts: what follows, what comes before, or what does not belong (Devlin et al. 2019).

A chunk of whole sentences is parted at a sentence boundary: A, and the true B. In some of the rows
the two change places (Lan et al. 2020). In others, and wherever the chunk is a single sentence, B
is instead a random place of another document (of the same one if there is no other), long enough to
fill the row. The longer of the two is then cut, piece by piece at either end, until both fit.

Two deviations make row i of epoch e a pure function of (seed, e, i). Chunks are the same in every
epoch, and what a random B leaves unused is not put back for the next chunk; since partings and B
are drawn anew in every epoch, another epoch uses it. And a sentence longer than a row is cut into
parts that count as sentences, so nothing of it is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from bertwright.examples.assembly.chunks import Units, chain, whole_sentences
from bertwright.examples.assembly.pair_layout import PairLayout, Texts, longest_first
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import RELATIONS, Relation, Rows
from bertwright.randomness import Counters, bits, integers, key, uniform

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class Pair(Assembly):
    """[CLS] A [SEP] B [SEP]; ``separators`` is the number of [SEP] between A and B (RoBERTa: 2).

    ``second`` says what B is to A, by relation: the share of each (BERT: ``next`` and ``random`` by
    halves; ALBERT: ``next`` and ``previous``; ERNIE 2.0: ``next``, ``same-document`` and
    ``random``). Where a document is one chunk, nothing else is of it, and B is random.
    """

    separators: Literal[1, 2] = 1
    second: dict[Relation, float] = Field(default={"next": 0.5, "random": 0.5})

    @field_validator("second")
    @classmethod
    def _shares(cls, second: dict[Relation, float]) -> dict[Relation, float]:
        if not second.keys() <= {"next", "random", "previous", "same-document"}:
            raise ValueError("may be next, random, previous or same-document")
        if min(second.values(), default=-1.0) < 0 or abs(sum(second.values()) - 1.0) > 1e-6:
            raise ValueError("must hold shares that sum to 1, e.g. {next: 0.5, random: 0.5}")
        return second

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset(self.second)

    def layout(self, split: "Split", specials: "Specials") -> PairLayout:
        """How its texts lie in a row."""
        return PairLayout(split, specials, self.length, self.separators)


class SegmentPair(Pair):
    """Chunks that fill a row, at times a shorter one (BERT's, RoBERTa's SEGMENT-PAIR).

    With probability ``short`` a chunk is filled only to a random length from 2 up.
    """

    kind: Literal["segment-pair"] = "segment-pair"
    short: float = Field(default=0.1, ge=0.0, le=1.0)

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        layout = self.layout(split, specials)
        units = whole_sentences(split, layout.room)
        of, unit = key(seed, "assembly", self.kind), np.arange(len(units.starts))
        is_short = uniform(key(of, "short"), unit) < self.short
        shorter = 2 + integers(key(of, "length"), layout.room - 1, unit)
        target = np.where(is_short, shorter, layout.room)
        reached = np.searchsorted(units.stops, units.starts + target) + 1
        first = chain(np.minimum(reached, units.after_document()))
        return _PairRows(layout, self.second, units, np.append(first, len(unit)), target, of)


class SentencePair(Pair):
    """Two natural sentences, however short (RoBERTa's SENTENCE-PAIR)."""

    kind: Literal["sentence-pair"] = "sentence-pair"

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        layout = self.layout(split, specials)
        units = whole_sentences(split, layout.room)
        of, unit = key(seed, "assembly", self.kind), np.arange(len(units.starts))
        first = chain(np.minimum(unit + 2, units.after_document()))
        target = np.zeros_like(unit)  # a random B is one sentence, too
        return _PairRows(layout, self.second, units, np.append(first, len(unit)), target, of)


@dataclass(frozen=True, slots=True, eq=False)
class _PairRows:
    """``chunks`` (C + 1,): the unit at which each begins; ``target`` (U,): pieces to fill."""

    layout: PairLayout
    second: Mapping[Relation, float]
    units: Units
    chunks: NDArray[np.int64]
    target: NDArray[np.int64]
    of: int

    @property
    def num_rows(self) -> int:
        return len(self.chunks) - 1

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        a, b, relation = self._draw(index, epoch)
        a, b = self._truncate(a, b, index, epoch)
        return self.layout.rows(a, b, relation)

    def _draw(
        self, index: NDArray[np.int64], epoch: Counters
    ) -> tuple[Texts, Texts, NDArray[np.int64]]:
        """A, B and their relation, before they are cut to length."""
        starts, stops = self.units.starts, self.units.stops
        first, last = self.chunks[index], self.chunks[index + 1] - 1
        num_units = last - first + 1
        parting = integers(key(self.of, "part"), np.maximum(num_units - 1, 1), epoch, index)
        last_of_a = first + parting
        num_a = stops[last_of_a] - starts[first]
        relation = self._relation(index, epoch)
        is_same = (relation == RELATIONS.index("same-document")) & (num_units > 1)
        near, near_last, found = self._nearby(first, last, self.target[first] - num_a, index, epoch)
        alone = (num_units == 1) | (is_same & ~found)
        relation = np.where(alone, RELATIONS.index("random"), relation)
        is_random = relation == RELATIONS.index("random")

        drawn, drawn_last = self._elsewhere(first, self.target[first] - num_a, index, epoch)
        first_of_b = np.where(is_random, drawn, np.minimum(last_of_a + 1, last))
        last_of_b = np.where(is_random, drawn_last, last)
        is_same &= found
        first_of_b = np.where(is_same, near, first_of_b)
        last_of_b = np.where(is_same, near_last, last_of_b)
        a = Texts(starts[first], num_a)
        b = Texts(starts[first_of_b], stops[last_of_b] - starts[first_of_b])
        before = relation == RELATIONS.index("previous")
        return a.where(~before, b), b.where(~before, a), relation

    def _relation(self, index: NDArray[np.int64], epoch: Counters) -> NDArray[np.int64]:
        """Which of ``RELATIONS`` is drawn for each row."""
        numbers = np.array([n for n, name in enumerate(RELATIONS) if self.second.get(name)])
        shares = np.array([self.second[RELATIONS[n]] for n in numbers.tolist()])
        drawn = 1.0 - uniform(key(self.of, "relation"), epoch, index)
        return numbers[np.searchsorted(np.cumsum(shares)[:-1], drawn, side="left")]

    def _elsewhere(
        self,
        unit: NDArray[np.int64],
        num_wanted: NDArray[np.int64],
        index: NDArray[np.int64],
        epoch: Counters,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last unit of a text from another document, filled to a wanted length."""
        num_documents = self.layout.split.num_documents
        step = 1 + integers(key(self.of, "document"), max(num_documents - 1, 1), epoch, index)
        document = (self.units.document[unit] + step) % num_documents
        begin = np.searchsorted(self.units.document, document)
        end = np.searchsorted(self.units.document, document, side="right")
        first = begin + integers(key(self.of, "sentence"), end - begin, epoch, index)
        wanted = self.units.starts[first] + np.maximum(num_wanted, 1)
        return first, np.minimum(np.searchsorted(self.units.stops, wanted), end - 1)

    def _nearby(
        self,
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        num_wanted: NDArray[np.int64],
        index: NDArray[np.int64],
        epoch: Counters,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """First and last unit of a text of the same document outside the chunk [first, last], and
        whether there is any."""
        own = self.units.document[first]
        begin = np.searchsorted(self.units.document, own)
        end = np.searchsorted(self.units.document, own, side="right")
        num_own = last - first + 1
        others = end - begin - num_own
        of = key(self.of, "same document")
        drawn = begin + integers(of, np.maximum(others, 1), epoch, index)
        is_behind = drawn >= first
        drawn = np.minimum(drawn + np.where(is_behind, num_own, 0), end - 1)
        wanted = self.units.starts[drawn] + np.maximum(num_wanted, 1)
        until = np.where(is_behind, end, first) - 1
        filled = np.minimum(np.searchsorted(self.units.stops, wanted), until)
        return drawn, np.maximum(filled, drawn), others > 0

    def _truncate(
        self, a: Texts, b: Texts, index: NDArray[np.int64], epoch: Counters
    ) -> tuple[Texts, Texts]:
        """Cut the texts until both fit, at either end piece by piece."""
        num_a, num_b = longest_first(a.count, b.count, self.layout.room)
        front_a = _heads(a.count - num_a, key(self.of, "front of A"), epoch, index)
        front_b = _heads(b.count - num_b, key(self.of, "front of B"), epoch, index)
        return Texts(a.start + front_a, num_a), Texts(b.start + front_b, num_b)


def _heads(
    num_tosses: NDArray[np.int64], of: int, epoch: Counters, index: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many of ``num_tosses`` (B,) fair coins fall heads."""
    num_words = int(num_tosses.max(initial=0)) // 64 + 1
    word = np.arange(num_words)
    drawn = bits(of, np.reshape(epoch, (-1, 1)), index[:, None], word)
    tosses = np.unpackbits(drawn.astype("<u8").view(np.uint8), axis=1)
    counted = np.arange(64 * num_words) < num_tosses[:, None]
    return (tosses & counted).sum(axis=1, dtype=np.int64)
