"""The encoder of a fine-tuned model, as a model that embeds texts."""

from collections.abc import Container, Mapping
from typing import Any, TypeVar

import torch

from bertwright.models.model import Model
from bertwright.recipes import Pooling, Recipe, SentenceVectorSettings
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.heads.kinds import LinearHeadConfig
from bertwright.tasks.heads.pooling import HeadPooling
from bertwright.tasks.outputs import (
    OutputType,
    SimilarityOutput,
)
from bertwright.tasks.task_model import TaskModel

Value = TypeVar("Value")

ENCODER_ONLY = {"objectives": {}, "pooler": False, "decoder": None}
"""Overrides that reduce a recipe to the encoder."""


def embedding_config(
    output_type: OutputType,
    head_config: HeadConfig,
    max_length: int,
    ends_with_start_token: bool = False,
) -> SentenceVectorSettings | None:
    """Return the embedding settings of an encoder fine-tuned for similarity.

    None for other tasks, and for heads that do more than to pool the last layer by mean or [CLS].
    """
    start_token: HeadPooling = "last" if ends_with_start_token else "first"
    poolings: dict[HeadPooling, Pooling] = {"mean": "mean", start_token: "cls"}
    if (
        not isinstance(output_type, SimilarityOutput)
        or not isinstance(head_config, LinearHeadConfig)
        or head_config.layers != "last"
        or head_config.norm != "none"
        or head_config.pooling not in poolings
    ):
        return None
    return SentenceVectorSettings(pooling=poolings[head_config.pooling], longest=max_length)


def encoder_of(task_model: TaskModel, embedding: SentenceVectorSettings) -> Model:
    """Return the encoder of a task model as a model that shares its parameters.

    A decoder or an LM head comes with it, and with these the recipe's objectives, apart from those
    that have a head of their own.
    """
    has_decoder, has_lm_head = task_model.decoder is not None, task_model.lm_head is not None
    unused: dict[str, Any] = {"pooler": False} if has_lm_head else ENCODER_ONLY
    with torch.device("meta"):
        recipe = task_model.recipe.model_copy(update={**unused, "vectors": embedding})
        model = Model(recipe, task_model.vocab_size)
    model.encoder = task_model.encoder
    if has_lm_head:
        model.output = task_model.lm_head
        model.recipe = _without_objectives(recipe, model.heads)
        model.heads.clear()
    if has_decoder:
        model.decoder = task_model.decoder
    return model


def _without_objectives(recipe: Recipe, names: Container[str]) -> Recipe:
    """Return a recipe without some objectives, whose phases do not train on them either."""
    phases = tuple(
        phase.model_copy(update={"objectives": _without(phase.objectives, names) or None})
        for phase in recipe.phases
    )
    objectives = _without(recipe.objectives, names)
    return recipe.model_copy(update={"objectives": objectives, "phases": phases})


def _without(values: Mapping[str, Value] | None, names: Container[str]) -> dict[str, Value]:
    return {name: value for name, value in (values or {}).items() if name not in names}
