"""Rows of pieces, and the coordinates of every place in them.

B rows, L places in a row. What stands in a place is a *piece*; what the encoder may know about the
place is its *coordinates*. Padding is whatever has document -1.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Relation = Literal["next", "random", "previous", "same-document", "real", "fake"]

RELATIONS: tuple[Relation, ...] = get_args(Relation)
"""What the texts of a row may be to each other. The second of a pair: what follows the first, a
stretch of another document, what comes before it, a stretch elsewhere in its document. The turns of
a dialogue: as they were, or one of them from another dialogue."""

Need = Literal[
    "translations",
    "languages",
    "histories",
    "dialogues",
    "connectives",
    "phrases",
    "capitals",
]
"""What not every data set holds: beside plain text, in it, or in its place."""


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Where each place stands; every array is (B, L) int32, None where nobody needs it.

    - ``position``: counted from the start of the place's document; None means 0 to L-1 in every row
    - ``segment``: 0 for the first text of a pair, 1 for the second; in a dialogue 0 for the one who
      speaks first, 1 for the others; None means 0 everywhere
    - ``document``: which of the row's isolated texts it belongs to, -1 for padding; None means that
      every place is real and the row is one text
    - ``word``: index of the word within the row, -1 for special tokens and padding
    - ``sentence``: index of the sentence within the row, -1 for special tokens and padding
    - ``order``: the turn of the place in a factorisation of the row
    - ``language``: which of the languages of the data its text is in, special tokens included; None
      where nobody said
    - ``phrase``, ``entity``: the number of the phrase or entity that it is part of, -1 where it is
      of none; None where nobody said
    - ``capital``: 1 where a word begins with a capital letter, 0 where not, -1 in rows of which
      nobody said; None where that is all of them
    - ``elsewhere``: 1 where its piece also stands in a part of its document that is not in the row,
      0 where not, -1 for special tokens and padding; None where nobody asks
    - ``connective``: at the first place of a second text the number of the connective that joined
      it to the first and was taken away, -1 at all others; None where none was
    - ``task``: which of the tasks of a training the row is of; None means the first
    - ``backward``: 1 in a row that is read from the end of its text, where positions count down;
      None where all rows are read forward
    - ``asking``: bool, places behind the text that know where they stand, not what stands there
    """

    position: NDArray[np.int32] | None = None
    segment: NDArray[np.int32] | None = None
    document: NDArray[np.int32] | None = None
    word: NDArray[np.int32] | None = None
    sentence: NDArray[np.int32] | None = None
    order: NDArray[np.int32] | None = None
    asking: NDArray[np.bool_] | None = None
    language: NDArray[np.int32] | None = None
    phrase: NDArray[np.int32] | None = None
    entity: NDArray[np.int32] | None = None
    capital: NDArray[np.int32] | None = None
    elsewhere: NDArray[np.int32] | None = None
    connective: NDArray[np.int32] | None = None
    task: NDArray[np.int32] | None = None
    backward: NDArray[np.int32] | None = None

    def present(self) -> dict[str, NDArray[Any]]:
        """Those that somebody needs, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: values for name, values in named.items() if values is not None}


OF_NONE = frozenset(("document", "word", "sentence", "phrase", "entity", "elsewhere", "connective"))
"""The coordinates that are -1 where a place is part of nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Assembled text, and what a question has made of it.

    - ``pieces``: (B, L) int32
    - ``special``: (B, L) bool, special tokens and padding: positions that are never masked. Those
      that a text spells are special too, though they are part of a word
    - ``relation``: (B,) int64 for pairs and dialogues, what their texts are to each other, as its
      number in ``RELATIONS``; None where rows are neither
    - ``cut``: (B, L) bool, special tokens that stand where a row was cut, where no text begins or
      ends; None where there are none
    """

    pieces: NDArray[np.int32]
    coordinates: Coordinates
    special: NDArray[np.bool_]
    relation: NDArray[np.int64] | None = None
    cut: NDArray[np.bool_] | None = None

    @property
    def spelled(self) -> NDArray[np.bool_]:
        """(B, L) bool: the special tokens that the text itself spells."""
        word = self.coordinates.word
        return np.zeros_like(self.special) if word is None else self.special & (word >= 0)

    @property
    def real(self) -> NDArray[np.bool_]:
        """(B, L) bool: the places that hold text or special tokens, not padding."""
        document, asking = self.coordinates.document, self.coordinates.asking
        real = np.ones(self.pieces.shape, np.bool_) if document is None else document >= 0
        return real if asking is None else real & ~asking
