"""Text without spaces: its words are runs of many tokens, and tokens are counted in their place."""

import numpy as np
from numpy.typing import NDArray

LONGEST_MEAN = 10
"""In tokens: words of spaced text are shorter on average, even spelled letter by letter."""


def unspaced(begins: NDArray[np.bool_], special: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (B, 1): which sequences hold words of more than ten tokens on average.

    ``begins`` (B, L) marks the first token of every word.
    """
    num_words = (begins & ~special).sum(axis=1, keepdims=True)
    return (~special).sum(axis=1, keepdims=True) > LONGEST_MEAN * num_words
