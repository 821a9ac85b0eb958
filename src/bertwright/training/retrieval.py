"""Do translations lie near each other? Each held-out text looks for its own among the others'.

A text is the mean of the states of its places, and the nearest vector is that with the largest
cosine (the task on Tatoeba in Artetxe and Schwenk 2019). Chance finds one in ``MOST_PAIRS``.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.model.model import Model
from bertwright.model.reading import read_batches, single
from bertwright.randomness import Permutation, key
from bertwright.text.selected import SelectedSplit, translations_apart
from bertwright.text.shards import Split
from bertwright.text.tokenizers import Specials

MOST_PAIRS = 100


def retrieval(model: Model, split: Split, specials: Specials) -> dict[str, float]:
    """``retrieval_en_de`` and the like: how many texts, on either side, find their translation.

    Nothing where the split holds no translations, or a single pair of two languages.
    """
    figures: dict[str, float] = {}
    if not len(split.translations):
        return figures
    for own in translations_apart(split):
        number = len(own.translations)
        if number > 1:
            order = Permutation(number, key(0, "retrieval"))
            second = own.translations[order(np.arange(min(number, MOST_PAIRS)))]
            first, other = (_vectors(model, own, side, specials) for side in (second - 1, second))
            alike, itself = first @ other.T, torch.arange(len(second), device=first.device)
            found = torch.cat([alike.argmax(dim) == itself for dim in (0, 1)])
            figures[f"retrieval_{own.name.replace('-', '_')}"] = float(found.float().mean())
    return figures


@torch.inference_mode()
def _vectors(
    model: Model, split: SelectedSplit, documents: NDArray[np.int64], specials: Specials
) -> Tensor:
    """A vector of length 1 for every document (N, D)."""
    device = model.embedding.device
    starts = split.document_starts
    texts = [split.pieces(*starts[d : d + 2].tolist()).tolist() for d in documents.tolist()]
    rows = [single(text, specials, model.encoder.longest) for text in texts]
    assert split.languages is not None
    spoken = torch.from_numpy(split.languages[documents].astype(np.int64)).to(device)
    vectors = torch.empty(len(rows), model.recipe.encoder.width, device=device)
    for batch in read_batches(rows, specials.pad, device):
        numbers = torch.from_numpy(batch.numbers).to(device)
        language = spoken[numbers, None].expand_as(batch.pieces)
        states = model(batch.pieces, replace(batch.coordinates, language=language)).float()
        document = batch.coordinates.document
        real = torch.ones_like(language) if document is None else document >= 0
        vectors[numbers] = (states * real[..., None]).sum(1) / real.sum(1, keepdim=True)
    return torch.nn.functional.normalize(vectors, dim=-1)
