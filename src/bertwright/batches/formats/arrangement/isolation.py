"""Isolated texts of a sequence: each with its own start token, positions and attention."""

from dataclasses import replace

import numpy as np

from bertwright.batches.token_info import SequenceBatch, positions_in_document
from bertwright.data.tokenization.tokenizer import SpecialTokens


def isolate_texts(batch: SequenceBatch, specials: SpecialTokens) -> SequenceBatch:
    """Return the sequences with [CLS] before every text, and every text as a document.

    Texts are laid out with two [SEP] between them; the second becomes a [CLS].
    """
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
