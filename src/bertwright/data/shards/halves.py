"""Two halves of the held-out documents: a choice on one is evaluated on the other."""

from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key, uniform
from bertwright.data.holdout import HELDOUT
from bertwright.data.shards.dataset import Dataset, Split
from bertwright.data.shards.subset import SplitSubset

Half = Literal["first", "second"]

RANDOM_KEY = stream_key(0, "held-out halves")
"""Fixed, so that the halves are the same for every model."""


def with_heldout_half(data: Dataset, half: Half) -> Dataset:
    """Return a data set whose held-out split has only the documents of a half.

    Errors: UserError if the half has none, and for histories, whose splits have the same users.
    """
    if data.manifest.tokenizer.kind == "items":
        raise UserError(f"{data.path} holds histories, which are not split into halves: use text")
    split = data.split(HELDOUT)
    documents = np.flatnonzero(_is_in_first_half(split) == (half == "first"))
    if not len(documents):
        raise UserError(
            f"{data.path} has too few held-out documents for two halves ({split.num_documents}): "
            f"prepare it with a larger --heldout"
        )
    return data.with_split(HELDOUT, SplitSubset(split, documents, HELDOUT))


def _is_in_first_half(split: Split) -> NDArray[np.bool_]:
    """Return, for every document, whether it is in the first half.

    This is a hash of its number of bytes, which is the same for every tokenizer and for copies of a
    document. A translation is in the half of its original.
    """
    bounds = pairwise(split.document_starts.tolist())
    num_bytes = np.array([split.word_bytes(*bound).sum(dtype=np.int64) for bound in bounds])
    is_first = uniform(RANDOM_KEY, num_bytes) < 0.5
    for document in split.translations.tolist():
        is_first[document] = is_first[document - 1]
    return is_first
