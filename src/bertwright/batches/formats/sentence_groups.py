"""Groups of consecutive sentences, each read alone (Kiros et al. 2015)."""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.layout import document_ids_at
from bertwright.batches.formats.arrangement.text_layout import TextLayout, TextSpans
from bertwright.batches.formats.dialogues import level_lengths
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch, positions_in_document
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class SentenceGroups(InputFormat):
    """[CLS] sentence [SEP] for each of ``sentences`` consecutive sentences of a document.

    Sentences are isolated from each other. The last sentence of a group is the first of the next
    one, so every two neighbouring sentences are in exactly one group. If a group is too long, its
    longest sentences lose their last tokens. Documents of one sentence are left out.
    """

    kind: Literal["sentence-groups"] = "sentence-groups"
    sentences: int = Field(default=3, ge=2, le=64)

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        if self.length < 3 * self.sentences:
            raise UserError(
                f"assembly: {self.sentences} sentences need a length of {3 * self.sentences} at "
                f"least, not {self.length}"
            )
        bounds = np.asarray(split.sentence_starts, np.int64)
        starts, lengths = bounds[:-1], np.diff(bounds)
        document_ids = document_ids_at(split, starts)
        number = np.arange(len(starts))
        offset = number - np.searchsorted(document_ids, document_ids)
        num_left = np.searchsorted(document_ids, document_ids, side="right") - number
        first_sentences = np.flatnonzero((offset % (self.sentences - 1) == 0) & (num_left > 1))
        if not len(first_sentences):
            raise UserError(
                f"the {split.name} split holds no document of two sentences: prepare more"
            )
        layout = TextLayout(split, specials, self.length, num_separators=2)

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            slot = np.arange(self.sentences)
            first = first_sentences[index][:, None]
            is_present = slot < num_left[first]
            sentence = np.minimum(first + slot, len(starts) - 1)
            # A [CLS] and a [SEP] for every sentence.
            max_tokens = self.length - 2 * is_present.sum(axis=1)
            kept = level_lengths(np.where(is_present, lengths[sentence], 0), max_tokens)
            texts = TextSpans(starts[sentence], kept)
            batch = layout.lay_out(texts, np.zeros_like(sentence), None, is_present)
            return _isolate_sentences(batch, specials)

        return SequenceSource(len(first_sentences), sequences)


def _isolate_sentences(batch: SequenceBatch, specials: SpecialTokens) -> SequenceBatch:
    """Return the sequences with [CLS] before every text, and every text as a document."""
    is_text = ~batch.is_special
    begins_text = np.pad(is_text[:, 1:], ((0, 0), (0, 1))) & batch.is_special
    document_ids = np.where(
        batch.is_real, np.cumsum(begins_text, axis=1, dtype=np.int32) - 1, np.int32(-1)
    )
    token_info = replace(
        batch.token_info,
        segment_ids=None,
        document_ids=document_ids,
        position_ids=positions_in_document(document_ids),
    )
    token_ids = np.where(begins_text, np.int32(specials.start), batch.token_ids)
    return replace(batch, token_ids=token_ids, token_info=token_info)
