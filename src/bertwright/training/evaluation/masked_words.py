"""Bits per byte of masked words: a loss comparable between tokenizers and objectives.

About 15 % of the words of held-out documents are masked. Bits per byte are the nats of all tokens
of these words, divided by ln 2 and by the UTF-8 bytes of the words. Tokens are predicted in rounds:
the first token of every masked word, then the second tokens given the first, and so on. A word thus
costs the same however its tokens are predicted in training, and every bidirectional model sees the
same context: the unmasked words and the earlier rounds. A causal model sees the preceding tokens.

Words are selected by a hash of the document number and the bytes of the preceding words, so they
are the same for every tokenizer, even if a token covers two words. Documents are split into windows
at word boundaries; a word longer than a window is predicted in parts, one per window.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.batch import Batch
from bertwright.batches.masking import SelectedPositions
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import RandomPermutation, stream_key, uniform
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.boundaries import WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.objectives.objective import Objective

MASKED_FRACTION = 0.15

RANDOM_KEY = stream_key(0, "bits-per-byte")
"""Fixed, so that the same words are masked for every model."""


@dataclass(frozen=True)
class MaskedWords:
    """One round of predicting masked whole words in some sequences.

    - ``selection``: the tokens of this round, one per word
    - ``is_masked``: (B, L) bool, tokens of this and later rounds
    - ``num_bytes``, ``num_words``: size of all masked words in the first round, else 0
    """

    sequences: SequenceBatch
    selection: SelectedPositions
    is_masked: NDArray[np.bool_]
    num_bytes: int
    num_words: int

    def make_batch(
        self, objectives: Mapping[str, Objective], vocabulary: Vocabulary
    ) -> Batch | None:
        """Make the batch of the round for the first objective that predicts tokens, if any.

        Errors: UserError from the objective.
        """
        for name, objective in objectives.items():
            result = objective.make_targets_at(
                self.selection, self.is_masked, self.sequences, vocabulary
            )
            if result is not None:
                sequences, targets = objective.with_task_ids(result[0]), result[1]
                num_tokens = int(sequences.is_real.sum())
                return Batch(sequences.token_ids, sequences.token_info, {name: targets}, num_tokens)
        return None


@dataclass(frozen=True)
class _TextWindow:
    """A part of a document; ``round_of_token`` is -1 for tokens that are not predicted."""

    language: int | None
    token_ids: NDArray[np.int32]
    round_of_token: NDArray[np.int64]
    num_bytes: int
    num_words: int


def iter_masked_words(
    split: Split,
    specials: SpecialTokens,
    opening_id: int,
    sequence_length: int,
    max_bytes: int,
    reserved: Collection[int] = (),
    batch_size: int = 32,
) -> Iterator[MaskedWords]:
    """Yield batches, round by round, from ``max_bytes`` of documents in a fixed random order.

    A sequence consists of ``opening_id``, text and the end token, padded to ``sequence_length``.
    Words with ``reserved`` tokens are not masked.
    """
    windows = _windows(split, sequence_length - 2, max_bytes, reserved)
    while batch := list(islice(windows, batch_size)):
        yield _make_round(0, batch, specials, opening_id, sequence_length)
        for index in range(1, 1 + max(int(window.round_of_token.max()) for window in batch)):
            remaining = [window for window in batch if (window.round_of_token == index).any()]
            yield _make_round(index, remaining, specials, opening_id, sequence_length)


def _windows(
    split: Split, max_tokens: int, max_bytes: int, reserved: Collection[int]
) -> Iterator[_TextWindow]:
    order = RandomPermutation(max(split.num_documents, 1), RANDOM_KEY)
    remaining_bytes = max_bytes
    for number in range(split.num_documents):
        document = int(order(number))
        start, stop = (int(p) for p in split.document_starts[document : document + 2])
        word_starts = np.flatnonzero(split.boundaries(start, stop) & WORD_START)
        word_ends = np.append(word_starts[1:], stop - start)
        sizes = split.word_bytes(start, stop).astype(np.int64)
        offsets = np.cumsum(sizes) - sizes
        in_budget = offsets < remaining_bytes
        is_masked = (uniform(RANDOM_KEY, document, offsets) < MASKED_FRACTION) & in_budget
        reserved_positions = np.flatnonzero(np.isin(split.token_ids(start, stop), list(reserved)))
        reserved_words = np.searchsorted(word_starts, reserved_positions, side="right") - 1
        is_masked[reserved_words[reserved_words >= 0]] = False
        if not in_budget.all():
            stop = start + int(word_starts[~in_budget][0])
        for begin, end in _window_bounds(word_starts, stop - start, max_tokens):
            round_of_token = np.full(end - begin, -1, np.int64)
            for word in np.flatnonzero(is_masked & (word_starts < end) & (word_ends > begin)):
                # Each window predicts its part of a word longer than a window.
                word_start, word_end = max(word_starts[word], begin), min(word_ends[word], end)
                rounds = np.arange(word_end - word_start)
                round_of_token[word_start - begin : word_end - begin] = rounds
            starts_here = is_masked & (word_starts >= begin) & (word_starts < end)
            yield _TextWindow(
                None if split.language_ids is None else int(split.language_ids[document]),
                split.token_ids(start + begin, start + end),
                round_of_token,
                int(sizes[starts_here].sum()),
                int(starts_here.sum()),
            )
        remaining_bytes -= int(sizes.sum())
        if remaining_bytes <= 0:
            return


def _window_bounds(
    word_starts: NDArray[np.int64], num_tokens: int, max_tokens: int
) -> Iterator[tuple[int, int]]:
    """Yield windows of at most ``max_tokens``, split at word starts unless a word is longer."""
    begin = 0
    while begin < num_tokens:
        end = min(begin + max_tokens, num_tokens)
        if end < num_tokens:
            start = (
                word_starts[np.searchsorted(word_starts, end, side="right") - 1]
                if len(word_starts)
                else 0
            )
            end = int(start) if start > begin else end
        yield begin, end
        begin = end


def _make_round(
    round_index: int,
    windows: Sequence[_TextWindow],
    specials: SpecialTokens,
    opening_id: int,
    sequence_length: int,
) -> MaskedWords:
    shape = (len(windows), sequence_length)
    token_ids = np.full(shape, specials.pad, np.int32)
    document_ids = np.full(shape, -1, np.int32)
    is_special = np.ones(shape, np.bool_)
    rounds = np.full(shape, -1, np.int64)
    for row, window in enumerate(windows):
        size = len(window.token_ids)
        token_ids[row, : size + 2] = [opening_id, *window.token_ids, specials.end]
        document_ids[row, : size + 2] = 0
        is_special[row, 1 : size + 1] = False
        rounds[row, 1 : size + 1] = window.round_of_token
    language_ids = None
    if windows[0].language is not None:
        languages = np.array([window.language for window in windows], np.int32)
        language_ids = np.broadcast_to(languages[:, None], shape).copy()
    token_info = TokenInfoArrays(document_ids=document_ids, language_ids=language_ids)
    unit_ids = np.where(rounds == round_index, rounds, -1)
    num_slots = max(1, int((rounds == round_index).sum(axis=1).max()))
    return MaskedWords(
        SequenceBatch(token_ids, token_info, is_special),
        SelectedPositions.from_unit_ids(unit_ids, num_slots),
        rounds >= round_index,
        sum(w.num_bytes for w in windows) if round_index == 0 else 0,
        sum(w.num_words for w in windows) if round_index == 0 else 0,
    )
