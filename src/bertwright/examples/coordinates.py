"""Rows of pieces, and the coordinates of every place in them.

B rows, L places in a row. What stands in a place is a *piece*; what the encoder may know about the
place is its *coordinates*. Padding is whatever has document -1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Where each place stands; every array is (B, L) int32, None where nobody needs it.

    - ``position``: counted from the start of the place's document; None means 0 to L-1 in every row
    - ``segment``: 0 for the first text of a pair, 1 for the second; None means 0 everywhere
    - ``document``: which of the row's isolated texts it belongs to, -1 for padding; None means that
      every place is real and the row is one text
    - ``word``: index of the word within the row, -1 for special tokens and padding
    - ``sentence``: index of the sentence within the row, -1 for special tokens and padding
    """

    position: NDArray[np.int32] | None = None
    segment: NDArray[np.int32] | None = None
    document: NDArray[np.int32] | None = None
    word: NDArray[np.int32] | None = None
    sentence: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Assembled text before anything is hidden.

    - ``pieces``: (B, L) int32
    - ``special``: (B, L) bool, special tokens and padding: places that are never chosen
    - ``relation``: (B,) int64 for pairs, 0 where the second text follows the first and 1 where it
      comes from another document (BERT's labels); None where rows are not pairs
    """

    pieces: NDArray[np.int32]
    coordinates: Coordinates
    special: NDArray[np.bool_]
    relation: NDArray[np.int64] | None = None

    @property
    def real(self) -> NDArray[np.bool_]:
        """(B, L) bool: the places that are not padding."""
        document = self.coordinates.document
        return np.ones(self.pieces.shape, np.bool_) if document is None else document >= 0
