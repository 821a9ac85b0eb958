"""Layout of pairs: two spans of the token stream as a sequence."""

from dataclasses import dataclass

import numpy as np

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.formats.layout import (
    add_annotations,
    document_ids_at,
    gather_padded,
    language_ids_of,
)
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens


@dataclass(frozen=True, slots=True, eq=False)
class TextSpans:
    """One span of the token stream per sequence, (B,)."""

    starts: IntArray
    lengths: IntArray

    def where(self, condition: BoolArray, other: "TextSpans") -> "TextSpans":
        """Return these spans where the condition holds, else ``other``."""
        starts = np.where(condition, self.starts, other.starts)
        return TextSpans(starts, np.where(condition, self.lengths, other.lengths))


@dataclass(frozen=True, slots=True, eq=False)
class PairLayout:
    """Sequences [CLS] A [SEP] B [SEP], with ``num_separators`` [SEP] between A and B."""

    split: Split
    specials: SpecialTokens
    length: int
    num_separators: int = 1

    @property
    def max_text_tokens(self) -> int:
        """Maximum number of tokens of both texts."""
        return self.length - 2 - self.num_separators

    def second_text_start(self, first_texts: TextSpans) -> IntArray:
        """Return the position at which the second text begins, (B,)."""
        return 1 + first_texts.lengths + self.num_separators

    def lay_out(
        self, first_texts: TextSpans, second_texts: TextSpans, relation: IntArray
    ) -> SequenceBatch:
        """Return sequences of pairs that fit, with their ``relation`` (B,)."""
        length, max_tokens = self.length, self.max_text_tokens
        positions = np.arange(length)
        second_start = self.second_text_start(first_texts)[:, None]
        end = second_start + second_texts.lengths[:, None]
        in_first = (positions >= 1) & (positions <= first_texts.lengths[:, None])
        in_second = (positions >= second_start) & (positions < end)
        is_text = in_first | in_second

        tokens, boundaries = gather_padded(
            self.split,
            np.stack([first_texts.starts, second_texts.starts], axis=1).ravel(),
            max_tokens,
        )
        columns = np.clip(
            np.where(in_second, max_tokens + positions - second_start, positions - 1),
            0,
            2 * max_tokens - 1,
        )
        tokens = np.take_along_axis(tokens.reshape(-1, 2 * max_tokens), columns, axis=1)
        boundaries = np.take_along_axis(boundaries.reshape(-1, 2 * max_tokens), columns, axis=1)

        token_ids = np.where(is_text, tokens, np.int32(self.specials.end))
        token_ids[:, 0] = self.specials.start
        is_real = positions <= end
        token_ids[~is_real] = self.specials.pad
        text_starts = (positions == 1) | (positions == second_start)
        word_ids, sentence_ids = (
            np.where(
                is_text, np.cumsum(text_starts | (boundaries & flag != 0) & is_text, axis=1) - 1, -1
            )
            for flag in (WORD_START, SENTENCE_START)
        )
        segment_ids = (positions > first_texts.lengths[:, None] + 1) & is_real
        language_ids = None
        if self.split.language_ids is not None:
            first_language, second_language = (
                language_ids_of(self.split, document_ids_at(self.split, texts.starts))
                for texts in (first_texts, second_texts)
            )
            language_ids = np.where(segment_ids, second_language[:, None], first_language[:, None])
        token_info = TokenInfoArrays(
            segment_ids=segment_ids.astype(np.int32),
            document_ids=np.where(is_real, np.int32(0), np.int32(-1)),
            word_ids=word_ids.astype(np.int32),
            sentence_ids=sentence_ids.astype(np.int32),
            language_ids=language_ids,
        )
        offsets = np.where(
            in_second, second_texts.starts[:, None] - second_start, first_texts.starts[:, None] - 1
        )
        token_info = add_annotations(
            token_info, self.split, np.where(is_text, offsets + positions, -1)
        )
        return SequenceBatch(token_ids, token_info, ~is_text, relation)


def truncate_longest_first(
    first_lengths: IntArray | int, second_lengths: IntArray | int, max_total: int
) -> tuple[IntArray, IntArray]:
    """Return the lengths after removing tokens one by one from the longer text until both fit.

    B counts as the longer one on ties, as in the code of Devlin et al. 2019.
    """
    first_lengths = np.minimum(
        first_lengths, np.maximum(max_total - second_lengths, (max_total + 1) // 2)
    )
    return first_lengths, np.minimum(second_lengths, max_total - first_lengths)
