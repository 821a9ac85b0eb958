"""The encoder of a fine-tuned model, as a model that embeds texts."""

from typing import TYPE_CHECKING, Any

import torch

from bertwright.models.model import Model
from bertwright.recipes import Pooling, SentenceVectorSettings
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.outputs import (
    OutputType,
    SimilarityOutput,
)
from bertwright.tasks.task_model import TaskModel

if TYPE_CHECKING:  # a model loads without SciPy
    pass


ENCODER_ONLY = {"objectives": {}, "pooler": False, "decoder": None}
"""Overrides that reduce a recipe to the encoder."""


EMBEDDING_POOLINGS: dict[str, Pooling] = {"mean": "mean", "first": "cls"}
"""Poolings of a head that ``embed`` supports, with the names that ``embed`` uses."""


def embedding_config(
    output_type: OutputType, head_config: HeadConfig, max_length: int
) -> SentenceVectorSettings | None:
    """Return the embedding settings of an encoder fine-tuned for similarity.

    None for other tasks, and for heads that ``embed`` cannot reproduce.
    """
    if (
        not isinstance(output_type, SimilarityOutput)
        or head_config.layers != "last"
        or head_config.pooling not in EMBEDDING_POOLINGS
    ):
        return None
    return SentenceVectorSettings(
        pooling=EMBEDDING_POOLINGS[head_config.pooling], longest=max_length
    )


def encoder_of(task_model: TaskModel, embedding: SentenceVectorSettings) -> Model:
    """Return the encoder of a task model as a model that shares its parameters.

    A decoder or an LM head comes with it, and with these the recipe's objectives.
    """
    has_decoder, has_lm_head = task_model.decoder is not None, task_model.lm_head is not None
    unused: dict[str, Any] = {"pooler": False} if has_lm_head else ENCODER_ONLY
    with torch.device("meta"):
        recipe = task_model.recipe.model_copy(update={**unused, "vectors": embedding})
        model = Model(recipe, task_model.vocab_size)
    model.encoder = task_model.encoder
    if has_lm_head:
        model.output = task_model.lm_head
        model.heads.clear()
    if has_decoder:
        model.decoder = task_model.decoder
    return model
