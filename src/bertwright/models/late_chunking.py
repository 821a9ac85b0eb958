"""Late chunking: a vector for each part of a text, in the context of the whole text.

The text is encoded first, and the hidden states of each part are averaged then (Günther et al.
2024). A text that is longer than the model allows is encoded in overlapping windows, and each token
has the hidden state of the window with most context.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.batches.formats import InputFormat
from bertwright.batches.word_windows import word_windows
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.text_batches import TextBatch


@dataclass(frozen=True, eq=False)
class TextChunks:
    """The C chunks of a text.

    Attributes:
        offsets: (C, 2) int64, the characters [start, stop) of each chunk.
        vectors: (C, D) float32, the mean hidden states of its tokens. Special tokens belong to the
            first and the last chunk.
    """

    offsets: NDArray[np.int64]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class _Window:
    """A sequence of token ids, and the number of the chunk of each token; -1 for none."""

    token_ids: list[int]
    chunk_ids: NDArray[np.int64]


@dataclass(frozen=True)
class ChunkEncoder:
    """An encoder of the chunks of texts.

    Attributes:
        max_tokens: maximum number of tokens of a chunk.
        max_length: maximum sequence length of the model, special tokens included; None if
            unlimited.
        prompt: stands before each window of a text, whose first chunk it belongs to; it has no
            characters in the offsets of chunks.
    """

    tokenizer: Tokenizer
    input_format: InputFormat
    max_tokens: int
    max_length: int | None
    prompt: str = ""

    def offsets(self, text: str) -> NDArray[np.int64]:
        """Return the characters [start, stop) of each chunk of a text, (C, 2)."""
        _, _, token_offsets, chunks = self._chunks(text)
        return _chunk_offsets(token_offsets, chunks)

    def encode(
        self,
        texts: Sequence[str],
        batches: Callable[[list[list[int]]], Iterable[TextBatch]],
        hidden_states: Callable[[TextBatch], Tensor],
        width: int,
    ) -> list[TextChunks]:
        """Return the chunks of texts.

        ``batches`` splits sequences into batches; ``hidden_states`` (B, L, width) are of a batch.
        """
        windows: list[_Window] = []
        offsets: list[NDArray[np.int64]] = []
        num_chunks = 0
        for text in texts:
            prompt_ids, token_ids, token_offsets, chunks = self._chunks(text)
            windows += self._windows(prompt_ids, token_ids, chunks, num_chunks)
            offsets.append(_chunk_offsets(token_offsets, chunks))
            num_chunks += len(chunks)
        sums, counts = torch.zeros(num_chunks, width), torch.zeros(num_chunks, 1)
        for batch in batches([window.token_ids for window in windows]):
            states = hidden_states(batch).float().cpu()
            for row, index in enumerate(batch.indices.tolist()):
                chunk_ids = torch.from_numpy(windows[index].chunk_ids)
                is_pooled = chunk_ids >= 0
                sums.index_add_(0, chunk_ids[is_pooled], states[row, : len(chunk_ids)][is_pooled])
                counts.index_add_(0, chunk_ids[is_pooled], torch.ones(int(is_pooled.sum()), 1))
        vectors = (sums / counts).numpy()
        stops = np.cumsum([len(spans) for spans in offsets], dtype=np.int64)
        return [
            TextChunks(spans, vectors[stop - len(spans) : stop])
            for spans, stop in zip(offsets, stops.tolist(), strict=True)
        ]

    def _chunks(self, text: str) -> tuple[list[int], list[int], list[tuple[int, int]], list[range]]:
        """Return the token ids of the prompt and of the text, and the chunks of the text.

        The last two are the characters of each token, and the tokens of each chunk.
        """
        all_ids, all_offsets = self.tokenizer.encode_with_offsets(f"{self.prompt}{text}")
        prompt_length = len(self.prompt)
        num_prompt = sum(stop <= prompt_length for _, stop in all_offsets) if self.prompt else 0
        prompt_ids, token_ids = all_ids[:num_prompt], all_ids[num_prompt:]
        offsets = [
            (max(start - prompt_length, 0), stop - prompt_length)
            for start, stop in all_offsets[num_prompt:]
        ]
        is_word_start = [start == 0 or text[start - 1].isspace() for start, _ in offsets]
        chunks: list[range] = []
        first = 0
        while first < len(token_ids):
            stop = min(first + self.max_tokens, len(token_ids))
            if stop < len(token_ids):
                # A word longer than a chunk is cut inside.
                stop = next((n for n in range(stop, first, -1) if is_word_start[n]), stop)
            chunks.append(range(first, stop))
            first = stop
        return prompt_ids, token_ids, offsets, chunks or [range(0)]

    def _windows(
        self,
        prompt_ids: list[int],
        token_ids: list[int],
        chunks: Sequence[range],
        first_chunk: int,
    ) -> Iterator[_Window]:
        """Yield the windows of a text whose chunks are numbered from ``first_chunk``."""
        size, available = len(token_ids), len(token_ids)
        if self.max_length is not None:
            available = max(self.max_length - 2 - len(prompt_ids), 1)
        spans = [(range(size), range(size))]
        if size > available:
            windows = word_windows(range(size), size, available, max(available // 2, 1))
            spans = [(window.words, window.tagged) for window in windows]
        text_start = len(prompt_ids) + self.input_format.text_start
        ids = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks]) + first_chunk
        for read, pooled in spans:
            sequence = self.input_format.add_special_tokens(
                [*prompt_ids, *token_ids[read.start : read.stop]], self.tokenizer.special_tokens
            )
            chunk_ids = np.full(len(sequence), -1)
            begin = text_start - read.start
            chunk_ids[begin + pooled.start : begin + pooled.stop] = ids[pooled.start : pooled.stop]
            if read.start == 0:
                chunk_ids[:text_start] = first_chunk
            if read.stop == size:
                chunk_ids[text_start + len(read) :] = first_chunk + len(chunks) - 1
            yield _Window(sequence, chunk_ids)


def _chunk_offsets(
    token_offsets: Sequence[tuple[int, int]], chunks: Sequence[range]
) -> NDArray[np.int64]:
    """Return the characters [start, stop) of each chunk, (C, 2)."""
    return np.array(
        [
            (token_offsets[chunk.start][0], token_offsets[chunk.stop - 1][1]) if chunk else (0, 0)
            for chunk in chunks
        ],
        np.int64,
    )
