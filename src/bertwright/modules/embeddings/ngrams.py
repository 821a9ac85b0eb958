"""Token embeddings with character n-grams (Bojanowski et al. 2017)."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.data.tokenization.character_ids import WORD_END_CHARACTER, WORD_START_CHARACTER
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.embeddings.spelling import SpelledEmbedding, SpelledEmbeddingsConfig

HASH_START, HASH_PRIME, HASH_MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
"""Constants of the 32-bit FNV-1a hash."""

MAX_BYTES_PER_CHARACTER = 4


class NgramEmbeddingsConfig(SpelledEmbeddingsConfig):
    """The mean of a token's own vector and the vectors of its character n-grams.

    The n-grams of ``shortest_ngram`` to ``longest_ngram`` characters, with ``<`` before and ``>``
    after the token, are hashed into ``buckets``. As in fastText, special tokens have none.
    """

    kind: Literal["ngrams"] = "ngrams"
    shortest_ngram: int = Field(default=3, ge=2, le=64)
    longest_ngram: int = Field(default=6, ge=2, le=64)
    buckets: int = Field(default=2_000_000, ge=1, le=1 << 26)

    @model_validator(mode="after")
    def _check_ngram_lengths(self) -> Self:
        if self.longest_ngram < self.shortest_ngram:
            raise ValueError(
                f"longest_ngram is {self.longest_ngram}, below shortest_ngram "
                f"({self.shortest_ngram})"
            )
        return self

    def build(self, vocab_size: int, width: int) -> nn.Module:
        return NgramEmbedding(self, vocab_size, width)


class NgramEmbedding(SpelledEmbedding):
    """Token embeddings from a table of tokens and a table of n-gram buckets."""

    def __init__(self, config: NgramEmbeddingsConfig, vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, config.longest)
        self.ngram_lengths = range(config.shortest_ngram, config.longest_ngram + 1)
        self.tokens = empty_embedding(vocab_size, width)
        self.ngrams = empty_embedding(config.buckets, width)

    def forward(self, token_ids: Tensor) -> Tensor:
        """Embed token_ids (...) int64 as (..., E), computing each distinct token once."""
        distinct, inverse = torch.unique(token_ids, return_inverse=True)
        owners, hashes = ngram_hashes(self.spelling_of(distinct), self.ngram_lengths)
        ngrams = embedding_lookup(self.ngrams.weight, hashes % len(self.ngrams.weight))
        sums = embedding_lookup(self.tokens.weight, distinct).index_add(0, owners, ngrams)
        num_vectors = 1 + torch.bincount(owners, minlength=len(distinct))
        return embedding_lookup(sums / num_vectors[:, None].to(sums.dtype), inverse)


def ngram_hashes(characters: Tensor, lengths: range) -> tuple[Tensor, Tensor]:
    """Return the word (K,) and the FNV-1a hash (K,) of every n-gram of words.

    ``characters`` (N, C) are the character IDs of :mod:`bertwright.data.tokenization.character_ids`
    with the start and the end of each word. Like those of fastText, hashes are over the bytes of an
    n-gram, which are read as signed numbers.
    """
    is_start, is_end = characters == WORD_START_CHARACTER, characters == WORD_END_CHARACTER
    byte_values = torch.where(is_start, ord("<"), torch.where(is_end, ord(">"), characters - 1))
    is_byte = (characters > 0) & (characters <= 256) | is_start | is_end
    # A token spelled with other characters, such as the end of a text, is special.
    is_padding = ~is_byte & (is_end.cumsum(1) > 0)
    is_word = (is_byte | is_padding).all(1, keepdim=True)
    begins_character = (byte_values & 0xC0) != 0x80
    signed = byte_values - 256 * (byte_values >= 128)
    hashes = torch.full_like(characters, HASH_START)
    num_characters = torch.zeros_like(characters)
    owners_by_size: list[Tensor] = []
    hashes_by_size: list[Tensor] = []
    num_columns = characters.shape[1]
    for size in range(1, min(MAX_BYTES_PER_CHARACTER * lengths[-1], num_columns) + 1):
        # Column i holds the n-gram of ``size`` bytes that starts at byte i.
        num_starts = num_columns - size + 1
        added = slice(size - 1, num_columns)
        hashes = ((hashes[:, :num_starts] ^ signed[:, added]) * HASH_PRIME) & HASH_MASK
        num_characters = num_characters[:, :num_starts] + begins_character[:, added].long()
        is_whole = nn.functional.pad(begins_character[:, size:], (0, 1), value=True)
        is_ngram = is_word & begins_character[:, :num_starts] & is_byte[:, added] & is_whole
        is_ngram &= (num_characters >= lengths[0]) & (num_characters <= lengths[-1])
        owner, column = is_ngram.nonzero(as_tuple=True)
        owners_by_size.append(owner)
        hashes_by_size.append(hashes[owner, column])
    return torch.cat(owners_by_size), torch.cat(hashes_by_size)
