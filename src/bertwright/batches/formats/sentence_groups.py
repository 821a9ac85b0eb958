"""Groups of consecutive sentences, each read alone (Kiros et al. 2015)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.batches.arrays import IntArray
from bertwright.batches.formats.arrangement.isolation import isolate_texts
from bertwright.batches.formats.arrangement.layout import document_ids_at
from bertwright.batches.formats.arrangement.text_layout import TextLayout, TextSpans
from bertwright.batches.formats.dialogues import level_lengths
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.errors import UserError
from bertwright.core.rng import Counters
from bertwright.data.shards.dataset import Split
from bertwright.data.tokenization.tokenizer import SpecialTokens


class SentenceGroups(InputFormat):
    """[CLS] sentence [SEP] for each of ``sentences`` consecutive sentences of a document.

    Sentences are isolated from each other. The last sentence of a group is the first of the next
    one, so every two neighbouring sentences are in exactly one group; groups of one sentence do not
    overlap. If a group is too long, its longest sentences lose their last tokens. Documents of one
    sentence are left out of larger groups. With ``copies``, each sentence is read several times,
    which differ by dropout alone (Gao et al. 2021).
    """

    kind: Literal["sentence-groups"] = "sentence-groups"
    sentences: int = Field(default=3, ge=1, le=64)
    copies: int = Field(default=1, ge=1, le=8)

    @property
    def num_isolated_texts(self) -> int:
        return self.sentences * self.copies

    @property
    def needs_dropout(self) -> bool:
        return self.copies > 1

    def plan(self, split: Split, specials: SpecialTokens, seed: int) -> SequenceSource:
        num_texts = self.num_isolated_texts
        if self.length < 3 * num_texts:
            raise UserError(
                f"assembly: {num_texts} sentences need a length of {3 * num_texts} at least, not "
                f"{self.length}"
            )
        bounds = np.asarray(split.sentence_starts, np.int64)
        starts, lengths = bounds[:-1], np.diff(bounds)
        document_ids = document_ids_at(split, starts)
        number = np.arange(len(starts))
        offset = number - np.searchsorted(document_ids, document_ids)
        num_left = np.searchsorted(document_ids, document_ids, side="right") - number
        is_first = offset % max(self.sentences - 1, 1) == 0
        first_sentences = np.flatnonzero(is_first & (num_left >= min(self.sentences, 2)))
        if not len(first_sentences):
            raise UserError(
                f"the {split.name} split holds no document of two sentences: prepare more"
            )
        layout = TextLayout(split, specials, self.length, num_separators=2)

        def sequences(index: IntArray, epoch: Counters) -> SequenceBatch:
            slot = np.arange(num_texts) // self.copies
            first = first_sentences[index][:, None]
            is_present = slot < num_left[first]
            sentence = np.minimum(first + slot, len(starts) - 1)
            # A [CLS] and a [SEP] for every sentence.
            max_tokens = self.length - 2 * is_present.sum(axis=1)
            kept = level_lengths(np.where(is_present, lengths[sentence], 0), max_tokens)
            texts = TextSpans(starts[sentence], kept)
            batch = layout.lay_out(texts, np.zeros_like(sentence), None, is_present)
            return isolate_texts(batch, specials)

        return SequenceSource(len(first_sentences), sequences)
