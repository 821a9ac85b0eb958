"""A table in the place of an encoder: what it says of each piece alone (Tulkens and van Dongen
2024, Model2Vec)."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.depth import NoBlocks
from bertwright.encoder.embeddings import Pieces
from bertwright.encoder.mixers import AttentionChoice
from bertwright.encoder.norms import Unnormalised
from bertwright.encoder.positions import NoPositions
from bertwright.errors import UserError
from bertwright.model.folder import filled
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

SMOOTHING = 1e-3
"""How likely a piece is that counts half (Arora et al. 2017)."""


def static_table(
    model: TextModel, width: int, counts: Mapping[int, int] | None = None
) -> TextModel:
    """A model without blocks, whose vector of a text is the mean of those of its pieces.

    Of each piece it is the mean of the states of the model for start, piece and end, brought to the
    ``width`` of their first principal components, times a / (a + p): the more likely a piece is, p,
    the less it counts. Without ``counts`` of pieces they are as likely as Zipf's law says of words
    in the order of their numbers. Special pieces are zeros.

    Errors: UserError for more components than there can be.
    """
    specials, size = model.tokenizer.specials, model.tokenizer.size
    pieces = np.setdiff1d(model.tokenizer.ids, list(specials.all))
    states = _states(model, pieces, specials)
    if not 1 <= width <= min(states.shape):
        raise UserError(f"a width of {width} is none of 1 to {min(states.shape)}: choose one")
    from sklearn.decomposition import PCA

    vectors = PCA(width, svd_solver="full").fit_transform(states)
    chances = _by_rank(len(pieces)) if counts is None else _by_count(pieces, counts)
    table = torch.zeros(size, width)
    weighted = vectors * (SMOOTHING / (SMOOTHING + chances))[:, None]
    table[torch.from_numpy(pieces)] = torch.from_numpy(weighted).float()
    recipe = _recipe(model.model.recipe, width)
    weights = {"encoder.embeddings.pieces.weight": table}
    return TextModel(filled(recipe, size, weights, recipe.name), model.tokenizer)


def _states(model: TextModel, pieces: NDArray[np.int64], specials: Specials) -> NDArray[np.float64]:
    """Of each piece between the start and the end, (N, D)."""
    rows = [[specials.start, piece, specials.end] for piece in pieces.tolist()]
    return model.embed_rows(rows, "mean").astype(np.float64)


def _by_rank(number: int) -> NDArray[np.float64]:
    chances = 1 / np.arange(1, number + 1)
    return chances / chances.sum()


def _by_count(pieces: NDArray[np.int64], counts: Mapping[int, int]) -> NDArray[np.float64]:
    """One more than they were counted, so that no piece is impossible."""
    found = np.array([counts.get(piece, 0) + 1.0 for piece in pieces.tolist()])
    return found / found.sum()


def _recipe(recipe: Recipe, width: int) -> Recipe:
    encoder = EncoderChoice(
        width=width,
        depth=NoBlocks(),
        embeddings=Pieces(norm=False),
        positions=NoPositions(),
        mixer=AttentionChoice(head_width=width),
        norm=Unnormalised(),
    )
    return Recipe(
        name=f"{recipe.name}-static",
        source="Tulkens and van Dongen 2024",
        text=recipe.text,
        assembly=recipe.assembly,
        encoder=encoder,
        objectives={},
    )
