"""Static embeddings: a table of one vector per token instead of an encoder.

Tulkens and van Dongen (2024, Model2Vec).
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import NoBlocksConfig
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.positions import NoPositionsConfig
from bertwright.modules.embeddings.embeddings import TokenEmbeddingsConfig
from bertwright.modules.norms import IdentityNormConfig
from bertwright.recipes import Recipe

SMOOTHING = 1e-3
"""Probability at which a token's weight is one half (Arora et al. 2017)."""

DEFAULT_WIDTH = 256
"""Width of the vectors of tokens, if the model has as many components."""


def static_embedding_model(
    model: TextModel, width: int | None = None, token_counts: Mapping[int, int] | None = None
) -> TextModel:
    """Return a model without blocks, whose text vector is the mean of its token vectors.

    A token vector is the model's mean hidden state over start, token and end, projected to its
    first ``width`` principal components (by default 256, or all if there are fewer) and multiplied
    by a / (a + p): the higher the token's probability p, the lower its weight. Without
    ``token_counts``, probabilities follow Zipf's law in the order of token ids. Vectors of special
    tokens are 0.

    Raises UserError for more components than exist.
    """
    specials, size = model.tokenizer.special_tokens, model.tokenizer.vocab_size
    token_ids = np.setdiff1d(model.tokenizer.ids, list(specials.all))
    states = _token_vectors(model, token_ids, specials)
    if width is None:
        width = min(DEFAULT_WIDTH, *states.shape)
    if not 1 <= width <= min(states.shape):
        raise UserError(
            f"a width of {width} is not possible: choose one of 1 to {min(states.shape)}"
        )
    from sklearn.decomposition import PCA

    vectors = PCA(width, svd_solver="full").fit_transform(states)
    probabilities = (
        _zipf_probabilities(len(token_ids))
        if token_counts is None
        else _token_probabilities(token_ids, token_counts)
    )
    table = torch.zeros(size, width)
    weighted = vectors * (SMOOTHING / (SMOOTHING + probabilities))[:, None]
    table[torch.from_numpy(token_ids)] = torch.from_numpy(weighted).float()
    recipe = _static_recipe(model.model.recipe, width)
    weights = {"encoder.embeddings.tokens.weight": table}
    return TextModel(model_from_tensors(recipe, size, weights, recipe.name), model.tokenizer)


def _token_vectors(
    model: TextModel, token_ids: NDArray[np.int64], specials: SpecialTokens
) -> NDArray[np.float64]:
    """Return the vector of each token between start and end tokens, (N, D)."""
    assembly = model.model.recipe.assembly
    sequences = [
        assembly.add_special_tokens([token_id], specials) for token_id in token_ids.tolist()
    ]
    return model.embed_ids(sequences, "mean").astype(np.float64)


def _zipf_probabilities(num_tokens: int) -> NDArray[np.float64]:
    weights = 1 / np.arange(1, num_tokens + 1)
    return weights / weights.sum()


def _token_probabilities(
    token_ids: NDArray[np.int64], token_counts: Mapping[int, int]
) -> NDArray[np.float64]:
    """Return probabilities with add-one smoothing, so that no probability is 0."""
    counts = np.array([token_counts.get(token_id, 0) + 1.0 for token_id in token_ids.tolist()])
    return counts / counts.sum()


def _static_recipe(recipe: Recipe, width: int) -> Recipe:
    encoder = EncoderConfig(
        width=width,
        depth=NoBlocksConfig(),
        embeddings=TokenEmbeddingsConfig(norm=False),
        positions=NoPositionsConfig(),
        mixer=AttentionConfig(head_width=width),
        norm=IdentityNormConfig(),
    )
    return Recipe(
        name=f"{recipe.name}-static",
        source="Tulkens and van Dongen 2024",
        text=recipe.text,
        assembly=recipe.assembly,
        encoder=encoder,
        objectives={},
    )
