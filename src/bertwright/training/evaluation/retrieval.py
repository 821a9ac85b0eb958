"""Translation retrieval on held-out texts (the Tatoeba task of Artetxe and Schwenk 2019).

A text is represented by the mean of its hidden states; the nearest text has the largest cosine
similarity. Chance accuracy is 1 / ``MAX_PAIRS``.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.data.shards.dataset import Split
from bertwright.data.shards.subset import SplitSubset, split_by_language_pair
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.models.model import Model
from bertwright.models.text_batches import add_special_tokens, text_batches

MAX_PAIRS = 100


def retrieval_accuracy(model: Model, split: Split, specials: SpecialTokens) -> dict[str, float]:
    """Return the retrieval accuracy of each language pair, such as ``retrieval_en_de``.

    Averages both directions. Empty without language pairs of at least two translations.
    """
    metrics: dict[str, float] = {}
    if not len(split.translations):
        return metrics
    for pair in split_by_language_pair(split):
        number = len(pair.translations)
        if number > 1:
            order = RandomPermutation(number, stream_key(0, "retrieval"))
            targets = pair.translations[order(np.arange(min(number, MAX_PAIRS)))]
            source_vectors, target_vectors = (
                _text_vectors(model, pair, side, specials) for side in (targets - 1, targets)
            )
            similarity = source_vectors @ target_vectors.T
            expected = torch.arange(len(targets), device=similarity.device)
            is_correct = torch.cat([similarity.argmax(dim) == expected for dim in (0, 1)])
            name = f"retrieval_{pair.name.replace('-', '_')}"
            metrics[name] = float(is_correct.float().mean())
    return metrics


@torch.inference_mode()
def _text_vectors(
    model: Model, split: SplitSubset, documents: NDArray[np.int64], specials: SpecialTokens
) -> Tensor:
    """Return the normalised vectors of documents (N, D)."""
    device = model.embedding_table.device
    starts = split.document_starts
    texts = [split.token_ids(*starts[d : d + 2].tolist()).tolist() for d in documents.tolist()]
    max_length, assembly = model.encoder.max_length, model.recipe.assembly
    sequences = [add_special_tokens(text, specials, max_length, assembly) for text in texts]
    assert split.language_ids is not None
    languages = torch.from_numpy(split.language_ids[documents].astype(np.int64)).to(device)
    vectors = torch.empty(len(sequences), model.recipe.encoder.width, device=device)
    for batch in text_batches(sequences, specials.pad, device):
        index = torch.from_numpy(batch.indices).to(device)
        language_ids = languages[index, None].expand_as(batch.token_ids)
        token_info = replace(batch.token_info, language_ids=language_ids)
        states = model(batch.token_ids, token_info).float()
        document_ids = batch.token_info.document_ids
        mask = torch.ones_like(language_ids) if document_ids is None else document_ids >= 0
        vectors[index] = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(vectors, dim=-1)
