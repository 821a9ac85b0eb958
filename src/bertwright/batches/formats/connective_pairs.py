"""Pairs of sentences joined by a connective at the start of the second."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.layout import gather_padded
from bertwright.batches.formats.arrangement.text_layout import (
    TextLayout,
    TextSpans,
    truncate_longest_first,
)
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
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
"""Connectives of contrast, result, detail, addition, time. The comma excludes other uses."""

_BLOCK_SIZE = 1 << 18


def _require_distinct(connectives: tuple[str, ...]) -> tuple[str, ...]:
    folded = [connective.casefold().strip() for connective in connectives]
    for number, name in enumerate(folded):
        if not name or name in folded[:number]:
            raise ValueError(f"contains {name!r} twice" if name else "may not be empty")
    return connectives


ConnectiveList = Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(_require_distinct)]
"""Connectives as written at the start of a sentence, with the comma if there is one."""


def find_connectives(split: Split, connectives: Sequence[str], unknown_id: int) -> IntArray:
    """Find the sentences that begin with a connective but do not begin a document, in one pass.

    A connective matches as written or capitalised. It must end at a word boundary, before the end
    of the sentence; the longest match wins. Return an array (3, P) of sentence indices (in order),
    connective indices, and lengths of the connectives in tokens.
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
    return np.concatenate(matches, axis=1)


def _token_patterns(
    split: Split, connectives: Sequence[str], unknown_id: int
) -> dict[tuple[int, ...], int]:
    """Return a dictionary from the token ids of each spelling of a connective to its index."""
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

    The connectives alternate, so that all labels are equally frequent, as in the paper's data;
    therefore pairs with a rare connective repeat more often. If a pair is too long, the longer
    sentence is truncated until both fit: A loses its first tokens and B its last, so the text
    around the connective is kept.
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
        if not occurrences.size:
            raise UserError(
                f"the {split.name} split holds no sentence that begins with a connective, such as "
                f"{self.connectives[0]!r}: set connectives of its language, or prepare more text"
            )
        # Pairs are sorted by connective; bounds (C + 1,) holds the first pair of each connective.
        order = np.argsort(occurrences[1], kind="stable")
        sentence_ids, connective_ids, num_connective_tokens = occurrences[:, order]
        bounds = np.append(np.flatnonzero(np.diff(connective_ids, prepend=-1)), len(order))
        layout = TextLayout(split, specials, self.length)
        turns_per_epoch = -(-len(order) // (len(bounds) - 1))

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            turn, connective = np.divmod(index, len(bounds) - 1)
            turn = turn + turns_per_epoch * np.asarray(epoch).astype(np.int64)
            pairs = bounds[connective] + turn % np.diff(bounds)[connective]
            sentences = sentence_ids[pairs]
            first_starts, first_stops, ends = (
                split.sentence_starts[sentences + shift] for shift in (-1, 0, 1)
            )
            second_starts = first_stops + num_connective_tokens[pairs]
            first_lengths, second_lengths = truncate_longest_first(
                first_stops - first_starts, ends - second_starts, layout.max_pair_tokens
            )
            batch = layout.lay_out_pairs(
                TextSpans(first_stops - first_lengths, first_lengths),
                TextSpans(second_starts, second_lengths),
                np.full(len(index), RELATIONS.index("next"), np.int64),
            )
            labels = np.full(batch.token_ids.shape, -1, np.int32)
            second_text = 1 + first_lengths + layout.num_separators
            labels[np.arange(len(index)), second_text] = connective_ids[pairs]
            return replace(batch, token_info=replace(batch.token_info, connective_ids=labels))

        return SequenceSource(len(order), sequences)
