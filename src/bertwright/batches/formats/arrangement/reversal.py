"""Sequences that are read from the end of the text.

In a reversed sequence of n positions, the token at p moves to n - 1 - p and keeps its position id
p, so position ids count down. The relative distance of positions i and j is then
(n - 1 - i) - (n - 1 - j) = -(i - j), the distance of the tokens in the text, as in the released
code of Yang et al. 2019. With i - j, the neighbours of every token would be on the wrong side.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.arrays import BoolArray, Int32Array
from bertwright.batches.token_info import SequenceBatch


def reverse_sequences(
    batch: SequenceBatch, is_backward: BoolArray, text_start: int
) -> SequenceBatch:
    """Reverse the sequences where ``is_backward`` (B,); each holds one text, padded at the end.

    The first and last ``text_start`` tokens keep their positions.
    """
    columns, is_real, token_info = (
        np.arange(batch.token_ids.shape[1]),
        batch.is_real,
        batch.token_info,
    )
    is_backward, end = is_backward[:, None], is_real.sum(axis=1, keepdims=True)
    position_ids = np.where(is_backward & is_real, end - 1 - columns, columns)
    is_inside = (columns >= text_start) & (columns < end - text_start)
    source = np.where(is_inside, position_ids, columns)

    def reordered(values: NDArray[Any]) -> NDArray[Any]:
        return np.take_along_axis(values, source, axis=1)

    arrays = token_info.gather(source).arrays()
    arrays |= {n: reverse_numbers(arrays[n], is_backward) for n in UNITS if n in arrays}
    if token_info.segment_ids is not None:
        # Segment 0 is the text that now comes first, with the special token after it.
        num_first = ((token_info.segment_ids == 1) & ~batch.is_special).sum(axis=1, keepdims=True)
        is_second = ((columns > num_first + 1) & is_real).astype(np.int32)
        arrays["segment_ids"] = np.where(is_backward, is_second, token_info.segment_ids)
    if token_info.language_ids is not None:
        arrays["language_ids"] = np.take_along_axis(token_info.language_ids, position_ids, axis=1)
    arrays["position_ids"] = position_ids.astype(np.int32)
    arrays["is_backward"] = np.broadcast_to(is_backward, is_real.shape).copy()
    is_special, boundary = reordered(batch.is_special), batch.is_truncation_boundary
    if boundary is not None:
        boundary = np.take_along_axis(boundary, position_ids, axis=1)
        # A separator between documents may come right after the first token.
        boundary[:, 1] |= is_backward[:, 0] & is_special[:, 1]
    return replace(
        batch,
        token_ids=reordered(batch.token_ids),
        token_info=replace(token_info, **arrays),
        is_special=is_special,
        is_truncation_boundary=boundary,
    )


UNITS = ("word_ids", "sentence_ids")
"""Token info that numbers the units of a sequence."""


def reverse_numbers(unit_ids: Int32Array, is_backward: BoolArray) -> Int32Array:
    """Return unit ids (B, L), counted from the last where ``is_backward`` (B, 1); -1 stays."""
    last = unit_ids.max(axis=1, keepdims=True)
    return np.where(is_backward & (unit_ids >= 0), last - unit_ids, unit_ids)
