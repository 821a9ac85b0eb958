"""The encoder reads one side of a pair of translations, the decoder is asked for the other (Vaswani
et al. 2017)."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
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

    def targets(self, length: int) -> int:
        return max(2, int(self.share * length))

    def noised(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float
    ) -> tuple[Rows, Question]:
        pair, language = rows.coordinates.document, rows.coordinates.language
        if pair is None or language is None or not (second := _second(pair, language)).any():
            raise UserError(
                "objectives.denoising.noising translates the second side of a pair: set "
                "assembly.kind to translation-pair"
            )
        if (pair > 0).any():
            raise UserError(
                "objectives.denoising.noising reads one pair a row: set assembly.packing to false"
            )
        length, column = pair.shape[1], np.arange(pair.shape[1])
        first = (pair == 0) & ~second
        start, size = second.argmax(axis=1), second.sum(axis=1) - 1
        width = self.targets(length)
        number = np.arange(width)
        real = number < np.minimum(size, width)[:, None]
        where = np.where(real, start[:, None] + 1 + number, 0)
        piece = np.take_along_axis(rows.pieces, where, 1).astype(np.int64)
        pad = vocabulary.specials.pad
        skipped = np.take_along_axis(rows.spelled, where, 1)
        targets = Targets(np.where(real, piece, pad), real, where, skipped=skipped)
        shown = np.where(first, rows.pieces, pad).astype(np.int64)
        source = np.broadcast_to(column, pair.shape).astype(np.int64)
        read = rearranged(rows, shown, source, first)
        counted = int(real.sum()), int(first.sum() + real.sum())
        return read, self.ask(targets, rows, vocabulary, counted)


def _second(pair: NDArray[np.int32], language: NDArray[np.int32]) -> NDArray[np.bool_]:
    """The places (R, L) of the side in the other language."""
    return (pair >= 0) & (language != language[:, :1])
