"""Two spans of the same document (Giorgi et al. 2021; Izacard et al. 2022)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.isolation import isolate_texts
from bertwright.batches.formats.arrangement.text_layout import TextLayout, TextSpans
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters, integers, stream_key, uniform
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class DocumentCrops(InputFormat):
    """[CLS] crop [SEP] [CLS] crop [SEP]: two isolated spans of the same part of a document.

    A document is cut into parts of ``part`` tokens; parts shorter than ``least`` are left out. The
    crops of a part are drawn in every epoch: a length from ``least`` tokens up to what fits in half
    a sequence, or only the latter if it is less, then a position. With ``lengths: beta`` the first
    crop tends to be long and the second one short (beta distributions of 4 and 2, and of 2 and 4);
    with ``near`` the second crop touches the first one or overlaps it (Giorgi et al. 2021).
    """

    kind: Literal["document-crops"] = "document-crops"
    part: int = Field(default=256, ge=2, le=1 << 20)
    least: int = Field(default=8, ge=1, le=1 << 20)
    lengths: Literal["uniform", "beta"] = "uniform"
    near: bool = False

    @property
    def num_isolated_texts(self) -> int:
        return 2

    @property
    def max_text_length(self) -> int:
        return self.length // 2

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        from scipy.special import betaincinv  # loading a model must not import it

        most = self.max_text_length - 2
        least = min(self.least, most)
        starts, lengths = _document_parts(split, self.part)
        is_long = lengths >= least
        starts, lengths = starts[is_long], lengths[is_long]
        if not len(starts):
            raise UserError(
                f"the {split.name} split holds no document of {least} tokens: prepare more, or "
                f"set a smaller assembly.least"
            )
        layout = TextLayout(split, specials, self.length, num_separators=2)
        length_key, start_key = (
            stream_key(seed, "assembly", "document-crops", name) for name in ("length", "start")
        )

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            coordinates = np.reshape(epoch, (-1, 1)), index[:, None], np.arange(2)
            available = lengths[index][:, None]
            num_lengths = np.minimum(available, most) - least + 1
            if self.lengths == "uniform":
                sizes = least + integers(length_key, num_lengths, *coordinates)
            else:
                fractions = betaincinv((4, 2), (2, 4), uniform(length_key, *coordinates))
                sizes = least + (fractions * num_lengths).astype(np.int64)
            offsets = integers(start_key, available - sizes + 1, *coordinates)
            if self.near:
                first, second = offsets[:, :1], sizes[:, 1:]
                lowest = np.maximum(first - second, 0)
                highest = np.minimum(first + sizes[:, :1], available - second)
                offsets[:, 1:] = (
                    lowest + integers(start_key, highest - lowest + 1, *coordinates)[:, 1:]
                )
            crops = TextSpans(starts[index][:, None] + offsets, sizes)
            is_present = np.ones(sizes.shape, np.bool_)
            batch = layout.lay_out(crops, np.zeros_like(sizes), None, is_present)
            return isolate_texts(batch, specials)

        return SequenceSource(len(starts), sequences)


def _document_parts(split: Split, size: int) -> tuple[IntArray, IntArray]:
    """Return the starts and lengths of consecutive parts of all documents."""
    bounds = np.asarray(split.document_starts, np.int64)
    num_parts = -(-np.diff(bounds) // size)
    document = np.repeat(np.arange(len(num_parts)), num_parts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(num_parts) - num_parts, num_parts)
    starts = bounds[document] + size * number
    return starts, np.minimum(size, bounds[document + 1] - starts)
