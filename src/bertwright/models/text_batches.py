"""Padded inference batches of tokenized texts, limited by their number of tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.batches.formats import InputFormat
from bertwright.batches.token_info import TokenInfoArrays, positions_in_document
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.modules.token_tensors import TokenInfo

BATCH_TOKENS = 1024
"""Tokens of a batch, enough to keep two cores busy and few enough for their cache."""

INT8_BATCH_TOKENS = 2048
"""Tokens of a batch in int8, which is larger because the fixed cost of a batch weighs more."""


@dataclass(frozen=True)
class TextBatch:
    """A batch of texts: their indices, padded token ids (B, L), token info, and lengths (B,)."""

    indices: NDArray[np.int64]
    token_ids: Tensor
    token_info: TokenInfo
    lengths: list[int]


def text_batches(
    sequences: Sequence[Sequence[int]],
    pad_id: int,
    device: torch.device,
    segment_ids: Sequence[Sequence[int]] | None = None,
    batch_tokens: int = BATCH_TOKENS,
    document_ids: Sequence[Sequence[int]] | None = None,
) -> Iterator[TextBatch]:
    """Yield padded batches of at most ``batch_tokens`` tokens, longest sequences first.

    ``segment_ids`` distinguish the texts of a pair; ``document_ids`` distinguish texts of a
    sequence that do not attend to each other.
    """
    lengths = np.array([len(token_ids) for token_ids in sequences], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        length = max(int(lengths[order[start]]), 1)
        indices = order[start : start + max(1, batch_tokens // length)]
        start += len(indices)
        yield pad_sequences(sequences, segment_ids, indices, length, pad_id, device, document_ids)


def pad_sequences(
    sequences: Sequence[Sequence[int]],
    segment_ids: Sequence[Sequence[int]] | None,
    indices: NDArray[np.int64],
    length: int,
    pad_id: int,
    device: torch.device,
    document_ids: Sequence[Sequence[int]] | None = None,
) -> TextBatch:
    """Return the sequences with these indices (B,), padded to ``length``."""
    token_ids = np.full((len(indices), length), pad_id, dtype=np.int64)
    documents = np.full((len(indices), length), -1, dtype=np.int32)
    segments = np.zeros((len(indices), length), dtype=np.int32)
    for row, index in enumerate(indices):
        size = len(sequences[index])
        token_ids[row, :size] = sequences[index]
        documents[row, :size] = 0 if document_ids is None else document_ids[index]
        if segment_ids is not None:
            segments[row, :size] = segment_ids[index]
    token_tensor = torch.from_numpy(token_ids).to(device)
    arrays = TokenInfoArrays(
        position_ids=None if document_ids is None else positions_in_document(documents),
        segment_ids=None if segment_ids is None else segments,
        document_ids=documents if documents.any() else None,
    )
    token_info = TokenInfo.from_arrays(arrays, token_tensor)
    return TextBatch(
        indices, token_tensor, token_info, [len(sequences[index]) for index in indices]
    )


def add_special_tokens(
    token_ids: Sequence[int],
    specials: SpecialTokens,
    max_length: int | None,
    input_format: InputFormat,
) -> list[int]:
    """Return a text with the special tokens of an input format, truncated to ``max_length``."""
    num_kept = len(token_ids) if max_length is None else max_length - 2
    return input_format.add_special_tokens(token_ids[:num_kept], specials)
