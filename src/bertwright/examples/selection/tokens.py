"""Places one by one."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.examples.coordinates import Rows
from bertwright.examples.selection.choosing import FILLER, Chosen, Selection, in_hash_order
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


class Tokens(Selection):
    """Places one by one without replacement, uniformly (Devlin et al. 2019), or rare pieces first:
    with ``rarity`` r a piece weighs count^-r at every draw (Lample and Conneau 2019: 0.5)."""

    kind: Literal["tokens"] = "tokens"
    rarity: float = Field(default=0.0, ge=0.0)

    def chosen(
        self,
        rows: Rows,
        vocabulary: Vocabulary,
        draw: Draw,
        number: NDArray[np.int64],
        slots: int,
    ) -> Chosen:
        length = rows.pieces.shape[1]
        if self.rarity:
            order, candidates = self._rare_first(rows, vocabulary, draw)
        else:
            order, candidates = in_hash_order(~rows.special, draw)
        chosen = np.minimum(number, candidates)
        rank = np.arange(slots)
        where = np.where(rank < chosen, order[:, :slots], length)
        where.sort(axis=1)
        weight = (rank < chosen).astype(np.float32)
        where = np.where(rank < chosen, where, FILLER)
        return Chosen(where, weight, where)

    def _rare_first(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Columns in the order of weighted draws without replacement, candidates first, and the
        number of candidates (Efraimidis and Spirakis 2006)."""
        column = np.arange(rows.pieces.shape[1])
        waited = -np.log1p(-draw.uniform(column)) * vocabulary.seen[rows.pieces] ** self.rarity
        order = np.argsort(np.where(rows.special, np.inf, waited), axis=1, kind="stable")
        return order, (~rows.special).sum(axis=1, keepdims=True)
