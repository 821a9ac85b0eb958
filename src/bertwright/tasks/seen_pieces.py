"""Only pieces that occur are trained: an encoder that is fine-tuned has no others in its table.

A piece that no row holds has no gradient. It would cost the optimiser as much as any other and come
out as it went in, but for weight decay, of which it is spared here: of large vocabularies, that is
most of the work and of the memory of a step on short texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.tasks.parts import Part

TABLE = "embeddings.pieces.weight"
"""The name of the table within an encoder."""


@dataclass(frozen=True)
class SeenPieces:
    """Which pieces of a vocabulary occur.

    Attributes:
        whole: (V, E) the table of all pieces.
        kept: (K,) int64, those that occur.
        number: (V,) int64, which of these each piece is; 0 for those that do not occur.
    """

    whole: Tensor
    kept: Tensor
    number: Tensor

    @staticmethod
    def of(encoder: Encoder, parts: Sequence[Part], padding: int) -> "SeenPieces | None":
        """What occurs in the rows that are trained on, and the piece that pads them; None where
        vectors are not the rows of one table."""
        if not isinstance(encoder.embeddings.pieces, nn.Embedding):
            return None
        occurs = {piece for part in parts for row in part.rows for piece in row.pieces} | {padding}
        whole = encoder.embeddings.pieces.weight.detach()
        kept = torch.tensor(sorted(occurs), device=whole.device)
        number = torch.zeros(len(whole), dtype=torch.int64, device=whole.device)
        number[kept] = torch.arange(len(kept), device=whole.device)
        return SeenPieces(whole, kept, number)

    def cut(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parameters of an encoder with those rows of its table alone."""
        return {**state, TABLE: state[TABLE][self.kept]}

    def restored(self, state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """The parameters of what was trained, in which ``prefix`` stands before the names of an
        encoder's, with all rows of its table."""
        whole = self.whole.to(state[prefix + TABLE].dtype).clone()
        whole[self.kept] = state[prefix + TABLE]
        return {**state, prefix + TABLE: whole}
