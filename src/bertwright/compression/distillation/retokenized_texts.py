"""The texts of a student's batch in the tokens of a teacher with another tokenizer."""

from dataclasses import dataclass

import numpy as np

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import TokenInfoArrays
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.text_model import TextModel


@dataclass(frozen=True)
class TextRetokenizer:
    """A map from batches of a student to batches of the same texts for a teacher.

    A sequence without masks is decoded to its text, which the teacher's tokenizer encodes. It is
    the text that the student reads: unknown tokens are missing, and it may be in lower case.
    """

    tokenizer: Tokenizer
    teacher: TextModel

    def __call__(self, batch: Batch) -> Batch:
        """Return the texts of a batch (B, L) as a batch (B, L') for the teacher."""
        numbers = batch.token_info.document_ids
        is_real = np.ones(batch.token_ids.shape, np.bool_) if numbers is None else numbers >= 0
        texts = [
            self.tokenizer.decode(ids[real].tolist())
            for ids, real in zip(batch.token_ids, is_real, strict=True)
        ]
        sequences = self.teacher.encode_ids(texts)
        length = max(map(len, sequences))
        shape = len(sequences), length
        token_ids = np.full(shape, self.teacher.tokenizer.special_tokens.pad, np.int32)
        document_ids = np.full(shape, -1, np.int32)
        for row, ids in enumerate(sequences):
            token_ids[row, : len(ids)] = ids
            document_ids[row, : len(ids)] = 0
        # A filler sequence has no token of the student, and none of the teacher.
        document_ids[~is_real.any(axis=1)] = -1
        num_tokens = int((document_ids >= 0).sum())
        info = TokenInfoArrays(document_ids=document_ids)
        return Batch(token_ids, info, {}, num_tokens, batch.first_sequence)
