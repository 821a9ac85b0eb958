"""A toy text: the token at stream position p is p + 100."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from hypothesis import strategies
from numpy.typing import NDArray

from bertwright.batches.formats import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch
from bertwright.data.shards.dataset import DialogueTurns, TokenSpans
from bertwright.data.shards.occurrences import TokenOccurrences
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import SpecialTokens

FIRST_TOKEN = 100
PAD, CLS, SEP, MASK = 0, 2, 3, 4
SPECIALS = SpecialTokens(pad=PAD, unknown=1, start=CLS, end=SEP, mask=MASK)

Documents = Sequence[Sequence[Sequence[int]]]  # tokens per word, by sentence and document

sentences = strategies.lists(strategies.integers(1, 4), min_size=1, max_size=12)
documents = strategies.lists(
    strategies.lists(sentences, min_size=1, max_size=6), min_size=1, max_size=8
)


@dataclass
class NumberedSplit:
    """A split in memory.

    Documents are in three languages in turn; the second of two neighbours translates the first.
    """

    document_starts: NDArray[np.int64]
    sentence_starts: NDArray[np.int64]
    word_starts: NDArray[np.int64]
    name: str = "train"

    @classmethod
    def of(cls, text: Documents) -> "NumberedSplit":
        words = np.cumsum([0, *(w for document in text for sentence in document for w in sentence)])
        sizes = [len(sentence) for document in text for sentence in document]
        sentence_starts = words[np.cumsum([0, *sizes])]
        document_starts = sentence_starts[np.cumsum([0, *(len(document) for document in text)])]
        return cls(document_starts, sentence_starts, words)

    def __post_init__(self) -> None:
        self.num_tokens = int(self.document_starts[-1])
        self.num_documents = len(self.document_starts) - 1
        self.num_sentences = len(self.sentence_starts) - 1
        self.language_ids = np.arange(self.num_documents) % 3
        self.language_names = ("en", "de", "fr")
        self.translations = np.arange(1, self.num_documents, 2)
        self.phrases: TokenSpans | None = None
        self.entities: TokenSpans | None = None
        self.turns: DialogueTurns | None = None
        self.capitals: NDArray[np.int64] | None = None
        self.occurrences: TokenOccurrences | None = None
        self.flags = np.zeros(self.num_tokens, np.uint8)
        self.flags[self.word_starts[:-1]] |= WORD_START
        self.flags[self.sentence_starts[:-1]] |= SENTENCE_START
        self.flags[self.document_starts[:-1]] |= DOCUMENT_START

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        positions = starts[:, None] + np.arange(length)
        assert positions.min() >= 0
        assert positions.max() < self.num_tokens
        return (FIRST_TOKEN + positions).astype(np.int32), self.flags[positions]

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids that a text lists."""
        return [int(number) for number in text.split()]

    def document_of(self, token_ids: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(self.document_starts, token_ids - FIRST_TOKEN, side="right") - 1

    def word_of(self, token_ids: NDArray[Any]) -> NDArray[np.int64]:
        return np.searchsorted(self.word_starts, token_ids - FIRST_TOKEN, side="right") - 1


def plan_text(
    input_format: InputFormat, text: Documents, seed: int = 0
) -> tuple[SequenceSource, NumberedSplit]:
    split = NumberedSplit.of(text)
    if "dialogues" in input_format.data_requirements:
        turns = split.sentence_starts[:-1]
        split.turns = DialogueTurns(turns, (np.arange(len(turns)) % 2).astype(np.uint8))
    return input_format.plan(cast(Any, split), SPECIALS, seed), split


def all_sequences(source: SequenceSource, epoch: int = 0) -> SequenceBatch:
    return source.sequences(np.arange(source.num_sequences), epoch)


def text_tokens(batch: SequenceBatch) -> list[NDArray[np.int32]]:
    """Return the text tokens of each sequence."""
    return [
        token_ids[~special]
        for token_ids, special in zip(batch.token_ids, batch.is_special, strict=True)
    ]
