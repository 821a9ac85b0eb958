"""Layout of several spans of the token stream, one after the other in a sequence."""

from dataclasses import dataclass, replace

import numpy as np

from bertwright.batches.arrays import BoolArray, Int32Array, IntArray
from bertwright.batches.formats.arrangement.layout import (
    add_annotations,
    document_ids_at,
    language_ids_of,
)
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens


@dataclass(frozen=True, slots=True, eq=False)
class TextSpans:
    """Spans of the token stream, in arrays of any shape."""

    starts: IntArray
    lengths: IntArray

    def where(self, condition: BoolArray, other: "TextSpans") -> "TextSpans":
        """Return these spans where the condition holds, else ``other``."""
        starts = np.where(condition, self.starts, other.starts)
        return TextSpans(starts, np.where(condition, self.lengths, other.lengths))


@dataclass(frozen=True, slots=True, eq=False)
class TextLayout:
    """Sequences [CLS] text [SEP] text [SEP] ..., with ``num_separators`` [SEP] between two texts.

    The [SEP] after a text, and all but the first [SEP] before it, have its segment and language.
    """

    split: Split
    specials: SpecialTokens
    length: int
    num_separators: int = 1

    @property
    def max_pair_tokens(self) -> int:
        """Return the maximum number of tokens of two texts."""
        return self.length - 2 - self.num_separators

    def lay_out_pairs(
        self, first_texts: TextSpans, second_texts: TextSpans, relation: IntArray
    ) -> SequenceBatch:
        """Return sequences of pairs (B,) with their ``relation`` (B,); every pair must fit."""
        starts = np.stack([first_texts.starts, second_texts.starts], axis=1)
        lengths = np.stack([first_texts.lengths, second_texts.lengths], axis=1)
        segment_ids = np.broadcast_to(np.arange(2), starts.shape)
        return self.lay_out(
            TextSpans(starts, lengths), segment_ids, relation, np.ones(starts.shape, np.bool_)
        )

    def lay_out(
        self,
        texts: TextSpans,
        segment_ids: IntArray,
        relation: IntArray | None,
        is_present: BoolArray,
    ) -> SequenceBatch:
        """Return sequences of texts (B, k) with their segment ids and ``relation`` (B,), if any.

        The texts of a sequence must fit, and those that are not present come last.
        """
        num_separators = np.where(np.arange(texts.starts.shape[1]), self.num_separators, 1)
        stops = 1 + np.cumsum(np.where(is_present, num_separators + texts.lengths, 0), axis=1)
        positions = np.arange(self.length)
        is_real = positions < stops[:, -1:]
        num_ended = np.sum([positions >= stop[:, None] for stop in stops.T], axis=0)
        text_index = np.where(is_real, num_ended, 0)

        def by_position(values: IntArray) -> IntArray:
            return np.take_along_axis(values, text_index, axis=1)

        lengths = by_position(texts.lengths)
        offsets = positions - (by_position(stops) - 1 - lengths)
        is_text = is_real & (offsets >= 0) & (offsets < lengths)
        stream_positions = np.where(is_text, by_position(texts.starts) + offsets, -1)
        tokens, token_info = read_text(self.split, stream_positions, offsets == 0)
        token_ids = np.where(is_text, tokens, np.int32(self.specials.end))
        token_ids[:, 0] = self.specials.start
        token_ids[~is_real] = self.specials.pad
        language_ids = None
        if self.split.language_ids is not None:
            document_ids = document_ids_at(self.split, texts.starts)
            language_ids = language_ids_of(self.split, by_position(document_ids))
        token_info = replace(
            token_info,
            segment_ids=np.where(is_real, by_position(segment_ids), 0).astype(np.int32),
            document_ids=np.where(is_real, np.int32(0), np.int32(-1)),
            language_ids=language_ids,
        )
        return SequenceBatch(token_ids, token_info, ~is_text, relation)


def read_text(
    split: Split, stream_positions: IntArray, is_text_start: BoolArray
) -> tuple[Int32Array, TokenInfoArrays]:
    """Return the tokens at stream positions (B, L), and their metadata.

    Position -1 means no token. The metadata are words and sentences, which also begin at
    ``is_text_start`` (B, L), and the annotations of the split.
    """
    is_text = stream_positions >= 0
    tokens, boundaries = split.gather(np.maximum(stream_positions, 0).ravel(), 1)
    boundaries = boundaries.reshape(is_text.shape)
    word_ids, sentence_ids = (
        np.where(
            is_text,
            np.cumsum(is_text & (is_text_start | (boundaries & flag != 0)), axis=1) - 1,
            -1,
        ).astype(np.int32)
        for flag in (WORD_START, SENTENCE_START)
    )
    token_info = TokenInfoArrays(word_ids=word_ids, sentence_ids=sentence_ids)
    return tokens.reshape(is_text.shape), add_annotations(token_info, split, stream_positions)


def truncate_longest_first(
    first_lengths: IntArray | int, second_lengths: IntArray | int, max_total: int
) -> tuple[IntArray, IntArray]:
    """Return the lengths after removing tokens one by one from the longer text until both fit.

    If both are equally long, B loses a token, as in the code of Devlin et al. 2019.
    """
    first_lengths = np.minimum(
        first_lengths, np.maximum(max_total - second_lengths, (max_total + 1) // 2)
    )
    return first_lengths, np.minimum(second_lengths, max_total - first_lengths)
