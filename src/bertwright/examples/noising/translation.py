"""The encoder reads one side of a pair of translations, the decoder is asked for the other (Vaswani
et al. 2017)."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.noising.noising import Noising, Targets, rearranged
from bertwright.examples.questions import Question
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


class Translation(Noising):
    """Of rows that hold a pair each (``assembly.kind: translation-pair``) the encoder is shown the
    first side, and the decoder is asked for the second, to the piece that ends it. ``share`` of a
    row is room for that; what is longer is cut."""

    kind: Literal["translation"] = "translation"
    begins: Literal["pad", "start", "end", "mask"] = "start"
    share: float = Field(default=0.5, gt=0.0, lt=1.0)

    rearranges: ClassVar[bool] = False

    def targets(self, length: int) -> int:
        return max(2, int(self.share * length))

    def noised(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float
    ) -> tuple[Rows, Question]:
        side = rows.coordinates.document
        if side is None or not (side == 1).any():
            raise UserError(
                "objectives.denoising.noising translates the second side of a pair: set "
                "assembly.kind to translation-pair"
            )
        if (side > 1).any():
            raise UserError(
                "objectives.denoising.noising reads one pair a row: set assembly.packing to false"
            )
        length, column = side.shape[1], np.arange(side.shape[1])
        first, second = side == 0, side == 1
        start, size = second.argmax(axis=1), second.sum(axis=1) - 1
        width = self.targets(length)
        number = np.arange(width)
        real = number < np.minimum(size, width)[:, None]
        where = np.where(real, start[:, None] + 1 + number, 0)
        piece = np.take_along_axis(rows.pieces, where, 1).astype(np.int64)
        pad = vocabulary.specials.pad
        targets = Targets(np.where(real, piece, pad), real, where)
        shown = np.where(first, rows.pieces, pad).astype(np.int64)
        source = np.broadcast_to(column, side.shape).astype(np.int64)
        read = rearranged(rows, shown, source, first)
        counted = int(real.sum()), int(first.sum() + real.sum())
        return read, self.ask(targets, rows, vocabulary, counted)
