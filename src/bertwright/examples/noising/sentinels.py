"""Spans become sentinels, which the decoder is asked to fill (Raffel et al. 2020, 3.1.4)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.errors import UserError
from bertwright.examples.coordinates import Rows
from bertwright.examples.noising.noising import Noising, Targets, rearranged, require_plain
from bertwright.examples.questions import Question
from bertwright.examples.selection import Partition
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


class Sentinels(Noising):
    """Each span becomes one sentinel. The targets are every sentinel, followed by its span, then
    one sentinel more, then the piece that ends texts.

    There are ``number`` sentinels: the last pieces of the vocabulary, the last of all first. Where
    it keeps none for them (``text.tokenizer.sentinels``), its rarest pieces serve twice.
    """

    kind: Literal["sentinels"] = "sentinels"
    selection: Partition = Partition()
    number: int = Field(default=100, ge=2, le=65_536)

    @property
    def masking_rate(self) -> float:
        return self.selection.rate.at(0.5)

    def targets(self, length: int) -> int:
        slots = self.selection.slots(length)
        return slots + self.selection.num_spans(slots) + 2

    def noised(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float
    ) -> tuple[Rows, Question]:
        require_plain(rows)
        num_rows, length = rows.pieces.shape
        chosen = self.selection.select(rows, vocabulary, draw.named("selection"), progress)
        taken = chosen.weight > 0
        begins = taken.copy()
        begins[:, 1:] &= chosen.unit[:, 1:] != chosen.unit[:, :-1]
        span = np.cumsum(begins, axis=1) - 1
        num_spans, num_taken = begins.sum(axis=1), taken.sum(axis=1)
        if num_spans.max(initial=0) >= self.number:
            raise UserError(
                f"objectives.denoising.noising.number is {self.number}, and a row has "
                f"{num_spans.max()} spans: set it to more, or a shorter assembly.length"
            )
        row, slot = np.nonzero(taken)
        first = begins[row, slot]
        place = chosen.where[row, slot]
        sentinel = vocabulary.tokens[-1 - span[row, slot]]

        kept = rows.real.copy()
        kept[row, place] = first
        pieces = rows.pieces.astype(np.int64)
        pieces[row[first], place[first]] = sentinel[first]
        source = np.argsort(~kept, axis=1, kind="stable")
        real = np.arange(length) < kept.sum(axis=1, keepdims=True)
        shown = np.where(real, np.take_along_axis(pieces, source, 1), vocabulary.specials.pad)
        new_place = np.cumsum(kept, axis=1) - 1

        width = self.targets(length)
        piece = np.full((num_rows, width), vocabulary.specials.pad, np.int64)
        where = np.zeros((num_rows, width), np.int64)
        at = slot + span[row, slot] + 1
        every = np.arange(num_rows)
        end = num_taken + num_spans
        piece[row, at] = rows.pieces[row, place]
        piece[row[first], at[first] - 1] = sentinel[first]
        piece[every, end] = vocabulary.tokens[-1 - num_spans]
        piece[every, end + 1] = vocabulary.specials.end
        where[row, at] = new_place[row, place]
        where[row[first], at[first] - 1] = new_place[row, place][first]
        last = kept.sum(axis=1) - 1
        where[every, end] = where[every, end + 1] = np.maximum(last, 0)
        targets = Targets(piece, np.arange(width) < end[:, None] + 2, where)
        noised = rearranged(rows, shown, source, real)
        hidden = int(num_taken.sum()), int(rows.real.sum())
        return noised, self.ask(targets, noised, vocabulary, hidden)
