"""What a graph is given and what it gives, by name; rows drawn by chance to be given.

On numpy alone, so that a process that times a graph is there at once.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.randomness import key

Given = Mapping[str, NDArray[np.int64]]

PIECES, REAL, SEGMENTS, LANGUAGES = "input_ids", "attention_mask", "token_type_ids", "langs"
"""The inputs by the names that stock models have, each (B, L) int64: the pieces; 1 where they are
real, and 0 behind them; the segment of each, and its language, where the encoder knows such."""

STATES, ANSWERS = "last_hidden_state", "logits"
"""The outputs, float32: the states (B, L, D); what a head says of every row (B, K) or place (B, L,
K), or the output over the vocabulary of every place (B, L, V)."""


def rows(inputs: Sequence[str], num_pieces: int, number: int, length: int) -> Given:
    """So many rows of this length, of pieces drawn by chance, for a graph with these inputs."""
    draw = np.random.default_rng(key(number, "parity", length))
    real = np.ones((number, length), np.int64)
    if number > 1:
        real[0, (length + 1) // 2 :], real[-1] = 0, 0
    given = {name: np.zeros((number, length), np.int64) for name in inputs}
    given[PIECES] = draw.integers(0, num_pieces, (number, length))
    given[REAL] = real
    if SEGMENTS in given:
        given[SEGMENTS][:, length // 3 :] = 1
    return given
