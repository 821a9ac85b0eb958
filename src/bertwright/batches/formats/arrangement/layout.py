"""Layout: a span of the token stream as a sequence.

Separators are inserted between documents of a sequence: [SEP] if documents attend to each other,
[SEP] [CLS] if they are isolated.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays, positions_in_document
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens


@dataclass(frozen=True, slots=True, eq=False)
class SequenceLayout:
    """Sequences of ``length`` tokens: [CLS], text with separators, [SEP], padding.

    Without ``adds_special_tokens`` a sequence is only text with separators.
    """

    split: Split
    specials: SpecialTokens
    length: int
    isolated: bool
    adds_special_tokens: bool = True

    @property
    def text_start(self) -> int:
        """Return the position at which the text of a sequence begins."""
        return 1 if self.adds_special_tokens else 0

    @property
    def max_text_tokens(self) -> int:
        """Return the maximum number of text tokens and separators in a sequence."""
        return self.length - 2 * self.text_start

    @property
    def separator_ids(self) -> tuple[int, ...]:
        """Return the token ids between two documents of a sequence."""
        return (self.specials.end, self.specials.start) if self.isolated else (self.specials.end,)

    def lay_out(
        self, starts: IntArray, lengths: IntArray, num_leading_separators: IntArray | int = 0
    ) -> SequenceBatch:
        """Return sequences of up to ``lengths`` (B,) tokens from stream positions ``starts`` (B,).

        Text that does not fit is truncated. A document that begins a sequence gets only the last
        ``num_leading_separators`` (B,) of its separators, for a sequence that begins within them.
        """
        tokens, boundaries = gather_padded(self.split, starts, self.max_text_tokens)
        offset = np.arange(self.max_text_tokens)
        is_given = offset < lengths[:, None]
        document_starts = is_given & (boundaries & DOCUMENT_START != 0)
        num_separators = len(self.separator_ids) * np.cumsum(document_starts, axis=1)
        num_omitted = num_separators[:, 0] - num_leading_separators * document_starts[:, 0]
        positions = self.text_start + offset + num_separators - num_omitted[:, None]
        end = self.text_start + np.minimum(
            lengths + num_separators[:, -1] - num_omitted, self.max_text_tokens
        )

        is_kept = is_given & (positions < self.text_start + self.max_text_tokens)
        is_text = np.zeros((len(starts), self.length), np.bool_)
        is_text.ravel()[(positions + self.length * np.arange(len(starts))[:, None])[is_kept]] = True
        token_ids = np.full(is_text.shape, self.specials.pad, np.int32)
        if self.adds_special_tokens:
            token_ids[:, 0] = self.specials.start
            token_ids[np.arange(len(starts)), end] = self.specials.end
        token_ids[is_text] = tokens[is_kept]
        sequence_starts = self._insert_separators(token_ids, document_starts, positions)
        word_ids, sentence_ids = (
            _unit_ids(is_text, is_kept, boundaries & (flag | DOCUMENT_START) != 0)
            for flag in (WORD_START, SENTENCE_START)
        )
        is_real = np.arange(self.length) < end[:, None] + self.text_start
        position_ids, document_ids = self._positions_and_documents(sequence_starts, is_real)
        language_ids = self._language_ids(starts, document_starts, is_text, sequence_starts)
        token_info = TokenInfoArrays(
            position_ids=position_ids,
            document_ids=document_ids,
            word_ids=word_ids,
            sentence_ids=sentence_ids,
            language_ids=language_ids,
        )
        annotations = (self.split.phrases, self.split.capitals, self.split.occurrences)
        if any(values is not None for values in annotations):
            stream_positions = np.full(is_text.shape, -1, np.int64)
            stream_positions[is_text] = (starts[:, None] + offset)[is_kept]
            token_info = add_annotations(token_info, self.split, stream_positions)
        boundary = None
        if self.adds_special_tokens:
            ends_document = _starts_document(self.split, starts + is_kept.sum(axis=1))
            boundary = _truncation_boundaries(
                is_text, sequence_starts, is_real, document_starts[:, 0], ends_document
            )
        return SequenceBatch(token_ids, token_info, ~is_text, is_truncation_boundary=boundary)

    def _insert_separators(
        self, token_ids: Int32Array, document_starts: BoolArray, positions: IntArray
    ) -> BoolArray:
        """Write separators into ``token_ids``; return where isolated documents begin, (B, L)."""
        is_start = np.zeros(token_ids.shape, np.bool_)
        is_start[:, 0] = self.adds_special_tokens
        sequence, offset = np.nonzero(document_starts)
        first = positions[sequence, offset] - len(self.separator_ids)
        last = len(self.separator_ids) - 1
        for i, token_id in enumerate(self.separator_ids):
            fits = (first + i >= self.text_start) & (
                first + i < self.text_start + self.max_text_tokens
            )
            token_ids[sequence[fits], first[fits] + i] = token_id
            # One token may be both start and end.
            is_start[sequence[fits], first[fits] + i] |= self.isolated and i == last
        return is_start

    def _language_ids(
        self,
        starts: IntArray,
        document_starts: BoolArray,
        is_text: BoolArray,
        is_sequence_start: BoolArray,
    ) -> Int32Array | None:
        """Return the language of every position, (B, L).

        A special token at the start of a document has the language of the next token; any other
        special token has that of the previous token.
        """
        if self.split.language_ids is None:
            return None
        after_first = np.cumsum(document_starts, axis=1) - document_starts[:, :1]
        languages = language_ids_of(
            self.split, document_ids_at(self.split, starts)[:, None] + after_first
        )
        token_number = np.cumsum(is_text, axis=1) - (is_text | ~is_sequence_start)
        last_token = is_text.sum(axis=1, keepdims=True) - 1
        return np.take_along_axis(languages, np.clip(token_number, 0, last_token), axis=1)

    def _positions_and_documents(
        self, is_sequence_start: BoolArray, is_real: BoolArray
    ) -> tuple[Int32Array | None, Int32Array]:
        """Return position and document ids, (B, L) each.

        Without special tokens, document 0 is the one that continues from the previous sequence.
        """
        numbers = np.cumsum(is_sequence_start, axis=1, dtype=np.int32) - self.adds_special_tokens
        document_ids = np.where(is_real, numbers, np.int32(-1))
        return positions_in_document(document_ids) if self.isolated else None, document_ids


def add_annotations(
    token_info: TokenInfoArrays, split: Split, stream_positions: IntArray
) -> TokenInfoArrays:
    """Add the annotations of a split: phrases, entities, capitals, repeated tokens.

    ``stream_positions`` (B, L) are positions in the split, or -1 for special tokens and padding.
    """
    if split.phrases is not None and split.entities is not None:
        phrase, entity = (
            split.phrases.index_at(stream_positions),
            split.entities.index_at(stream_positions),
        )
        token_info = replace(token_info, phrase_ids=phrase, entity_ids=entity)
    if split.capitals is not None:
        # A sequence may begin inside a word.
        word_starts = _word_starts(split, stream_positions)
        nearest = np.searchsorted(split.capitals, word_starts)
        nearest = np.minimum(nearest, max(len(split.capitals) - 1, 0))
        is_capital = (
            split.capitals[nearest] == word_starts if len(split.capitals) else word_starts < -1
        )
        token_info = replace(token_info, is_capitalised=is_capital.astype(np.int32))
    if split.occurrences is not None:
        token_info = replace(
            token_info, occurs_elsewhere=split.occurrences.occurs_elsewhere(stream_positions)
        )
    return token_info


def _word_starts(split: Split, positions: IntArray) -> IntArray:
    """Return the position at which the word of each position starts; negative ones stay."""
    starts = positions.astype(np.int64)
    inside = np.flatnonzero(starts > 0)
    while len(inside):
        flags = split.gather(starts.flat[inside], 1)[1][:, 0]
        inside = inside[flags & (WORD_START | DOCUMENT_START) == 0]
        starts.flat[inside] -= 1
        inside = inside[starts.flat[inside] > 0]
    return starts


def _truncation_boundaries(
    is_text: BoolArray,
    is_sequence_start: BoolArray,
    is_real: BoolArray,
    starts_document: BoolArray,
    ends_document: BoolArray,
) -> BoolArray:
    """Return the special tokens (B, L) at which the text is cut.

    These are separators without text at their side, and the first and last token of a sequence
    unless its text ``starts_document`` or ``ends_document`` (B,).
    """
    before = np.pad(is_text[:, 1:], ((0, 0), (0, 1)))
    after = np.pad(is_text[:, :-1], ((0, 0), (1, 0)))
    boundaries = is_real & ~is_text & ~np.where(is_sequence_start, before, after)
    boundaries[:, 0] |= ~starts_document
    boundaries[np.arange(len(boundaries)), is_real.sum(axis=1) - 1] |= ~ends_document
    return boundaries


def _starts_document(split: Split, stream_positions: IntArray) -> BoolArray:
    """Return whether each stream position is the start of a document or the end of the split."""
    starts = split.document_starts
    return starts[np.searchsorted(starts, stream_positions)] == stream_positions


def document_ids_at(split: Split, stream_positions: IntArray) -> IntArray:
    """Return the index of the document that contains each stream position."""
    document_ids = np.searchsorted(split.document_starts, stream_positions, side="right") - 1
    return np.minimum(document_ids, split.num_documents - 1)


def language_ids_of(split: Split, document_ids: IntArray) -> Int32Array:
    """Return the languages of documents; an arbitrary language past the end of the split."""
    assert split.language_ids is not None
    return split.language_ids[np.minimum(document_ids, split.num_documents - 1)].astype(np.int32)


def gather_padded(
    split: Split, starts: IntArray, length: int
) -> tuple[Int32Array, NDArray[np.uint8]]:
    """Return the result of ``split.gather``, with arbitrary values past the end of the split."""
    within = min(length, split.num_tokens)
    first = np.minimum(starts, split.num_tokens - within)
    tokens, boundaries = split.gather(first, within)
    if within == length and np.array_equal(first, starts):
        return tokens, boundaries
    column = np.minimum(np.arange(length) + (starts - first)[:, None], within - 1)
    return np.take_along_axis(tokens, column, axis=1), np.take_along_axis(
        boundaries, column, axis=1
    )


def _unit_ids(is_text: BoolArray, is_kept: BoolArray, unit_starts: BoolArray) -> Int32Array:
    """Return the index in its sequence of each token's word or sentence, (B, L); -1 elsewhere.

    If a sequence begins within a word, the rest of that word is word 0.
    """
    unit_starts[:, 0] = True
    index = np.full(is_text.shape, -1, np.int32)
    index[is_text] = (np.cumsum(unit_starts, axis=1, dtype=np.int32) - 1)[is_kept]
    return index
