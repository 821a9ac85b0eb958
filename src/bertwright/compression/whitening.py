"""Whitening: a linear map after which the vectors of texts are uncorrelated (Su et al. 2021)."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.compression.pruning.structured import unique_weights
from bertwright.core.errors import UserError
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.modules.vector_projection import VECTOR_PROJECTION, VectorProjectionConfig
from bertwright.tasks.fine_tuned_model import FineTunedModel

BATCH_SIZE = 4_096
"""Number of texts that are in memory at once."""

SMALLEST_VARIANCE = 1e-6
"""Variance of a direction, relative to the largest, below which it is only rounding."""

ROUNDING_VARIANCE = 1e-10
"""Variance relative to the squared length of the mean vector, below which it is only rounding."""


@dataclass(frozen=True)
class WhitenedModel:
    """A model with whitened vectors.

    Attributes:
        explained_variance: fraction of the variance of the vectors in the directions kept.
        num_texts: number of texts that the map was fitted to.
    """

    model: TextModel
    explained_variance: float
    num_texts: int


def whiten(model: TextModel, texts: Iterable[str], width: int | None = None) -> WhitenedModel:
    """Return a model whose vectors of these texts have mean 0 and covariance 1.

    The ``width`` directions with the largest variance are kept, by default all that vary: a final
    layer norm, for example, fixes one. The map follows a projection that the model has, and
    replaces it. Memory does not grow with the number of texts.

    Raises UserError for too few texts, for more directions than vary, for a projection that is not
    linear, and for a model that is fine-tuned or has no weights.
    """
    _require_encoder(model)
    projection = model.model.vector_projection
    if projection is not None and projection.config.activation != "identity":
        raise UserError(
            f"the vectors of {model.model.recipe.name} are projected with "
            f"{projection.config.activation}, which a linear map cannot follow"
        )
    mean, covariance, num_texts = _moments(model, texts)
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1], directions[:, ::-1]
    rounding = max(SMALLEST_VARIANCE * variances[0], ROUNDING_VARIANCE * mean @ mean)
    num_directions = int((variances > rounding).sum())
    if num_texts <= len(mean):
        raise UserError(
            f"vectors of {len(mean)} dimensions cannot be whitened with {num_texts:,} texts: name "
            f"more than {len(mean)}, and better a thousand or more"
        )
    if num_directions == 0:
        raise UserError(f"these {num_texts:,} texts have the same vector: name different texts")
    width = num_directions if width is None else width
    if not 1 <= width <= num_directions:
        raise UserError(
            f"the vectors of these texts vary in {num_directions} directions, and {width} were "
            f"requested: name other texts, or at most {num_directions} dimensions"
        )
    matrix = (directions[:, :width] / np.sqrt(variances[:width])).T
    weight, bias = matrix, -matrix @ mean
    if projection is not None:
        previous = projection.linear
        weight = matrix @ previous.weight.detach().cpu().double().numpy()
        if projection.config.bias:
            bias = bias + matrix @ previous.bias.detach().cpu().double().numpy()
    explained = float(variances[:width].sum() / variances.sum())
    return WhitenedModel(_with_projection(model, weight, bias), explained, num_texts)


def _require_encoder(model: TextModel) -> None:
    """Raise UserError unless the model is a pre-trained encoder with weights."""
    if isinstance(model, FineTunedModel):
        raise UserError(
            f"whiten changes the vectors of a pre-trained encoder, and this model is fine-tuned "
            f"for {model.task.name}: name the encoder"
        )
    if next(model.model.parameters(), None) is None:
        raise UserError(
            "the vectors of an ONNX graph cannot change: name the folder that it was exported from"
        )


def _moments(
    model: TextModel, texts: Iterable[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return the mean (D,) and the covariance (D, D) of the vectors of texts, and their number."""
    width = model.model.recipe.vector_width
    mean, scatter, count = np.zeros(width), np.zeros((width, width)), 0
    texts = iter(texts)
    while batch := list(islice(texts, BATCH_SIZE)):
        vectors = model.embed(batch).astype(np.float64)
        # The parallel update of Chan et al. (1983), which does not cancel.
        difference = vectors.mean(0) - mean
        total = count + len(vectors)
        centred = vectors - vectors.mean(0)
        scatter += centred.T @ centred
        scatter += np.outer(difference, difference) * count * len(vectors) / total
        mean += difference * len(vectors) / total
        count = total
    return mean, scatter / max(count, 1), count


def _with_projection(
    model: TextModel, weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> TextModel:
    """Return a copy of a model whose vectors are projected by these weights."""
    network = model.model
    config = VectorProjectionConfig(width=len(weight))
    vectors = network.recipe.vectors.model_copy(update={"projection": config})
    recipe = network.recipe.model_copy(update={"vectors": vectors})
    tensors = {n: t for n, t in unique_weights(network).items() if VECTOR_PROJECTION not in n}
    for name, values in {"weight": weight, "bias": bias}.items():
        tensors[f"{VECTOR_PROJECTION}linear.{name}"] = torch.from_numpy(values).float()
    projected = model_from_tensors(recipe, network.vocab_size, tensors, recipe.name)
    return TextModel(projected, model.tokenizer, model.precision)
