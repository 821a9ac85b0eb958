"""Full sequences: the token stream, cut into equal lengths without padding."""

from typing import Literal

import numpy as np

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.layout import SequenceLayout
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters, integers, stream_key
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class Packed(InputFormat):
    """The whole stream in sequences without padding (compare the unpadding of Warner et al. 2024).

    Documents are concatenated with [SEP] [CLS] between them. A sequence is [CLS], the next
    ``length - 2`` tokens, [SEP]. Each document of a sequence attends only to itself and counts its
    positions from 0. Every epoch begins at a different offset, so documents are cut elsewhere. Each
    token is used once per epoch, except fewer than ``2 * length`` at the two ends of the stream. A
    cut within [SEP] [CLS] leaves a lone [CLS], a lone [CLS] [SEP] or a second [SEP] at the edge of
    a sequence.

    If not ``isolated``, documents are separated by a single [SEP], attend to each other, and count
    positions from the start of the sequence (the streams of Radford et al. 2018).
    """

    kind: Literal["packed"] = "packed"
    isolated: bool = True

    @property
    def isolation_setting(self) -> str | None:
        return "isolated" if self.isolated else None

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        rng_key = stream_key(seed, "assembly", "packed")
        return _plan_packed(SequenceLayout(split, specials, self.length, self.isolated), rng_key)


class Contiguous(InputFormat):
    """The whole stream without [CLS] and [SEP] around each sequence.

    Documents are separated by [SEP]. If ``isolated``, they are separated by [SEP] [CLS] and each
    attends only to itself. Sequences follow the text: sequence i of every step continues sequence i
    of the step before, as a recurrent memory requires. The cuts are the same in every epoch.

    With ``backward`` the sequences come from the end of the text to its start, for an encoder that
    reads backward. The tokens of a sequence keep their order.
    """

    kind: Literal["contiguous"] = "contiguous"
    isolated: bool = False
    backward: bool = False

    @property
    def is_sequential(self) -> bool:
        return True

    @property
    def is_backward(self) -> bool:
        return self.backward

    @property
    def isolation_setting(self) -> str | None:
        return "isolated" if self.isolated else None

    def start_token(self, specials: SpecialTokens) -> int:
        return specials.start if self.isolated else specials.end

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        layout = SequenceLayout(
            split, specials, self.length, self.isolated, adds_special_tokens=False
        )
        source = _plan_packed(layout, None)
        if not self.backward:
            return source
        last = source.num_sequences - 1
        return SequenceSource(
            source.num_sequences, lambda index, epoch: source.sequences(last - index, epoch)
        )


def _plan_packed(layout: SequenceLayout, rng_key: int | None) -> SequenceSource:
    """Return full sequences of a stream.

    ``rng_key`` is the key for the random offset of each epoch; None for offset 0.
    """
    split, num_separators = layout.split, len(layout.separator_ids)
    document_starts = np.asarray(split.document_starts[:-1], np.int64)
    separator_starts = document_starts + num_separators * np.arange(len(document_starts))
    num_tokens = split.num_tokens + num_separators * (len(document_starts) - 1)
    if num_tokens < layout.max_text_tokens:
        raise UserError(
            f"the {split.name} split holds {split.num_tokens} tokens, too few for one "
            f"sequence of length {layout.length}: prepare more text or set a smaller length"
        )
    num_sequences = max(1, (num_tokens - layout.max_text_tokens + 1) // layout.max_text_tokens)
    slack = 0 if rng_key is None else num_tokens - num_sequences * layout.max_text_tokens

    def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
        # In the stream with separators, the separators before document d begin at
        # separator_starts[d]; an epoch begins somewhere after the first separators.
        first = num_separators + integers(rng_key or 0, slack + 1, epoch)
        position = first + layout.max_text_tokens * index
        document_id = np.searchsorted(separator_starts, position, side="right") - 1
        offset = position - separator_starts[document_id]
        start = document_starts[document_id] + np.maximum(offset - num_separators, 0)
        count = np.minimum(layout.max_text_tokens, split.num_tokens - start)
        return layout.lay_out(
            start, count, num_leading_separators=np.maximum(num_separators - offset, 0)
        )

    return SequenceSource(num_sequences, sequences)
