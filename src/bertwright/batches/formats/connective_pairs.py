"""Pairs of sentences joined by a connective that opens the second."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.formats.layout import gather_padded
from bertwright.batches.formats.pair_layout import PairLayout, TextSpans, truncate_longest_first
from bertwright.batches.token_info import RELATIONS, DataRequirement, Relation, SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import DOCUMENT_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens

ENGLISH_CONNECTIVES = (
    *("but", "however,", "nevertheless,", "instead,", "otherwise,", "on the other hand,"),
    *("therefore,", "thus,", "as a result,", "consequently,"),
    *("for example,", "in particular,", "in fact,", "indeed,"),
    *("in addition,", "moreover,", "similarly,"),
    *("then,", "meanwhile,", "finally,"),
)
"""Contrast, result, detail, addition, time. The comma excludes other uses of the word."""

_BLOCK_SIZE = 1 << 18


def _require_distinct(connectives: tuple[str, ...]) -> tuple[str, ...]:
    folded = [connective.casefold().strip() for connective in connectives]
    for number, name in enumerate(folded):
        if not name or name in folded[:number]:
            raise ValueError(f"contains {name!r} twice" if name else "may not be empty")
    return connectives


ConnectiveList = Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(_require_distinct)]
"""Connectives as they are written at the start of a sentence, with comma if any."""


@dataclass(frozen=True, slots=True, eq=False)
class ConnectiveOccurrences:
    """Sentences that begin with a connective and are not the first of their document, in order.

    - ``sentence_ids``: (P,) int64, sentence numbers in the split
    - ``connective_ids``: (P,) int64
    - ``num_tokens``: (P,) int64, the length of the connective
    """

    sentence_ids: IntArray
    connective_ids: IntArray
    num_tokens: IntArray


def find_connectives(
    split: Split, connectives: Sequence[str], unknown_id: int
) -> ConnectiveOccurrences:
    """Find all connectives in one pass over the sentence starts.

    A connective matches as written or capitalised. It must end at a word boundary and be followed
    by more of its sentence; the longest match wins.
    """
    patterns = _token_patterns(split, connectives, unknown_id)
    longest = max(map(len, patterns), default=1)
    firsts = np.array([pattern[0] for pattern in patterns], np.int32)
    matches: list[IntArray] = [np.empty((3, 0), np.int64)]
    starts = np.asarray(split.sentence_starts, np.int64)
    for block in range(0, len(starts) - 1, _BLOCK_SIZE):
        block_starts = starts[block : block + _BLOCK_SIZE + 1]
        tokens, boundaries = gather_padded(split, block_starts[:-1], longest + 1)
        is_candidate = np.isin(tokens[:, 0], firsts) & (boundaries[:, 0] & DOCUMENT_START == 0)
        sentences = np.flatnonzero(is_candidate)
        tokens, boundaries = tokens[sentences], boundaries[sentences]
        sizes = np.diff(block_starts)[sentences]
        connective_ids, num_tokens = np.full(len(sentences), -1), np.zeros(len(sentences), np.int64)
        for pattern in sorted(patterns, key=len):
            size = len(pattern)
            matched = (sizes > size) & (boundaries[:, size] & WORD_START != 0)
            matched &= (tokens[:, :size] == np.array(pattern)).all(axis=1)
            connective_ids[matched], num_tokens[matched] = patterns[pattern], size
        is_match = connective_ids >= 0
        matches.append(
            np.stack([block + sentences[is_match], connective_ids[is_match], num_tokens[is_match]])
        )
    return ConnectiveOccurrences(*np.concatenate(matches, axis=1))


def _token_patterns(
    split: Split, connectives: Sequence[str], unknown_id: int
) -> dict[tuple[int, ...], int]:
    """Map the token ids of each spelling of a connective to its number."""
    patterns: dict[tuple[int, ...], int] = {}
    for number, name in enumerate(connectives):
        for spelling in (name, f"{name[:1].upper()}{name[1:]}"):
            for prefix in ("", " "):
                token_ids = tuple(split.tokenize(prefix + spelling))
                if token_ids and unknown_id not in token_ids:
                    patterns.setdefault(token_ids, number)
    return patterns


class ConnectedPair(InputFormat):
    """[CLS] A [SEP] B [SEP], where B follows A and its connective is removed (Sileo et al. 2019).

    The connectives alternate, so that all labels are equally frequent, as in their data; so pairs
    with a rare connective repeat more often. In a pair that is too long, the longer sentence is
    truncated until both fit: A loses its first tokens, B its last, so the joint is kept.
    """

    kind: Literal["connected-pair"] = "connected-pair"
    connectives: ConnectiveList = ENGLISH_CONNECTIVES

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return frozenset({"connectives"})

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset({"next"})

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        occurrences = find_connectives(split, self.connectives, specials.unknown)
        if not len(occurrences.sentence_ids):
            raise UserError(
                f"the {split.name} split holds no sentence that begins with a connective, such as "
                f"{self.connectives[0]!r}: set connectives of its language, or prepare more text"
            )
        order = np.argsort(occurrences.connective_ids, kind="stable")
        occurrences = ConnectiveOccurrences(
            occurrences.sentence_ids[order],
            occurrences.connective_ids[order],
            occurrences.num_tokens[order],
        )
        first = np.flatnonzero(np.diff(occurrences.connective_ids, prepend=-1))
        bounds = np.append(first, len(order))
        return _ConnectedPairSource(PairLayout(split, specials, self.length), occurrences, bounds)


@dataclass(frozen=True, slots=True, eq=False)
class _ConnectedPairSource:
    """Pairs sorted by connective; ``bounds`` (C + 1,) is the first pair of each connective."""

    layout: PairLayout
    occurrences: ConnectiveOccurrences
    bounds: IntArray

    @property
    def num_sequences(self) -> int:
        return len(self.occurrences.sentence_ids)

    def sequences(self, index: IntArray, epoch: Counters) -> SequenceBatch:
        num_connectives = len(self.bounds) - 1
        turns_per_epoch = -(-self.num_sequences // num_connectives)
        turn, connective = np.divmod(index, num_connectives)
        turn = turn + turns_per_epoch * np.asarray(epoch).astype(np.int64)
        pairs = self.bounds[connective] + turn % np.diff(self.bounds)[connective]
        sentences, num_removed = (
            self.occurrences.sentence_ids[pairs],
            self.occurrences.num_tokens[pairs],
        )
        starts = self.layout.split.sentence_starts
        first_starts, second_starts, ends = (
            starts[sentences - 1],
            starts[sentences] + num_removed,
            starts[sentences + 1],
        )
        first_lengths, second_lengths = truncate_longest_first(
            starts[sentences] - first_starts, ends - second_starts, self.layout.max_text_tokens
        )
        first_texts, second_texts = (
            TextSpans(starts[sentences] - first_lengths, first_lengths),
            TextSpans(second_starts, second_lengths),
        )
        batch = self.layout.lay_out(
            first_texts, second_texts, np.full(len(index), RELATIONS.index("next"), np.int64)
        )
        connective_ids = np.full(batch.token_ids.shape, -1, np.int32)
        connective_ids[np.arange(len(index)), self.layout.second_text_start(first_texts)] = (
            self.occurrences.connective_ids[pairs]
        )
        return replace(batch, token_info=replace(batch.token_info, connective_ids=connective_ids))
