"""Pieces as the characters that they are written with (Peters et al. 2018).

A character is a byte of UTF-8. Beside the 256 of them stand: the start and the end of a text, which
are words of one such character; the start and the end of a word; and what fills a word up. All are
counted from 1: a row of 0 is the piece that fills rows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.text.tokenizers import Tokenizer

TEXT_START, TEXT_END, WORD_START, WORD_END, FILLER = range(257, 262)

NUM_CHARACTERS = 262


def spelling(tokenizer: Tokenizer, size: int, longest: int) -> NDArray[np.int16]:
    """The characters of every piece, (size, longest).

    A table may have rows without a token; those are written as nothing.
    """
    specials = tokenizer.specials
    written = [""] * size
    for index in tokenizer.ids.tolist():
        written[index] = tokenizer.piece(index)
    found = spelled(written, longest)
    for piece, character in ((specials.start, TEXT_START), (specials.end, TEXT_END)):
        found[piece] = _framed([character], longest)
    found[specials.pad] = 0
    return found


def spelled(written: Sequence[str], longest: int) -> NDArray[np.int16]:
    """The characters of texts that are one word each, (len(written), longest): what is too long is
    cut, so that the end of the word always stands there."""
    rows = [_framed([byte + 1 for byte in text.encode()], longest) for text in written]
    return np.array(rows, np.int16).reshape(len(written), longest)


def _framed(characters: list[int], longest: int) -> list[int]:
    word = [WORD_START, *characters[: longest - 2], WORD_END]
    return word + [FILLER] * (longest - len(word))
