"""Character ids of tokens (Peters et al. 2018).

A character is a UTF-8 byte. Additional characters mark the start and the end of a text (words of
one such character), the start and the end of a word, and padding. Ids start at 1; the padding token
is all 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.data.tokenization.tokenizer import Tokenizer

(
    TEXT_START_CHARACTER,
    TEXT_END_CHARACTER,
    WORD_START_CHARACTER,
    WORD_END_CHARACTER,
    PADDING_CHARACTER,
) = range(257, 262)

NUM_CHARACTERS = 262


def token_character_ids(
    tokenizer: Tokenizer, vocab_size: int, max_length: int
) -> NDArray[np.int16]:
    """Return the character ids of every token, (vocab_size, max_length).

    Token ids without a token get an empty word.
    """
    special_tokens = tokenizer.special_tokens
    tokens = [""] * vocab_size
    for token_id in tokenizer.ids.tolist():
        tokens[token_id] = tokenizer.id_to_token(token_id)
    ids = character_ids(tokens, max_length)
    ids[special_tokens.start] = _pad_word([TEXT_START_CHARACTER], max_length)
    ids[special_tokens.end] = _pad_word([TEXT_END_CHARACTER], max_length)
    ids[special_tokens.pad] = 0
    return ids


def character_ids(words: Sequence[str], max_length: int) -> NDArray[np.int16]:
    """Return the character ids of words, (len(words), max_length).

    Long words are truncated, but keep the end-of-word character.
    """
    ids = [_pad_word([byte + 1 for byte in word.encode()], max_length) for word in words]
    return np.array(ids, np.int16).reshape(len(words), max_length)


def _pad_word(characters: list[int], max_length: int) -> list[int]:
    word = [WORD_START_CHARACTER, *characters[: max_length - 2], WORD_END_CHARACTER]
    return word + [PADDING_CHARACTER] * (max_length - len(word))
