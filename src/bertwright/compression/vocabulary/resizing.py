"""A model with another tokenizer: every parameter with a row per token gets other rows."""

from collections.abc import Callable

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bertwright.compression.pruning.structured import unique_weights
from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.model import Model
from bertwright.models.saving import build_empty, load_tensors
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.task_model import TaskModel

ModelBuilder = Callable[[Recipe, int], nn.Module]
RowMaker = Callable[[str, Tensor], Tensor]
"""Returns the rows of a parameter for the new tokenizer, given its name and its current rows."""


def network(model: TextModel) -> Model | TaskModel:
    """Return the module with all parameters of a model, pre-trained or fine-tuned."""
    return model.task_model if isinstance(model, FineTunedModel) else model.model


def builder(model: TextModel) -> ModelBuilder:
    """Return a function that builds a network such as the model's for a vocabulary size."""
    if not isinstance(model, FineTunedModel):
        return Model
    net = model.task_model
    return lambda recipe, size: TaskModel(recipe, size, net.head_spec, net.adaptation)


def with_tokenizer(
    model: TextModel, tokenizer: Tokenizer, num_rows: int, make_rows: RowMaker
) -> TextModel:
    """Return the model with another tokenizer, in tables of ``num_rows`` rows.

    Shared parameters stay shared. Raises UserError for a vocabulary size that the recipe does not
    allow, and for a model that does not have a row per token.
    """
    original, build = network(model), builder(model)
    per_token = parameters_per_token(model)
    recipe = _with_vocab_size(original.recipe, tokenizer.vocab_size)
    weights = {
        name: make_rows(name, tensor) if name in per_token else tensor
        for name, tensor in unique_weights(original).items()
    }
    resized = build_empty(build, recipe, num_rows)
    load_tensors(resized, weights, recipe.name)
    if isinstance(model, FineTunedModel):
        assert isinstance(resized, TaskModel)
        settings = model.task, model.example_encoder.max_length, model.precision, model.temperature
        return FineTunedModel(resized, tokenizer, *settings)
    assert isinstance(resized, Model)
    return TextModel(resized, tokenizer, model.precision)


def parameters_per_token(model: TextModel) -> frozenset[str]:
    """Return the names of parameters and buffers with a row per token.

    These are the ones whose shape depends on the vocabulary size: the network is built, without
    values, for one token more. Raises UserError if a shape depends on it in another way, and for
    a model without weights.
    """
    original, build = network(model), builder(model)
    if next(original.parameters(), None) is None:
        raise UserError(
            "the vocabulary of an ONNX graph cannot change: name the folder that it was exported "
            "from"
        )
    size = original.vocab_size
    with torch.device("meta"):
        larger = unique_weights(build(original.recipe, size + 1))
    names: set[str] = set()
    for name, tensor in unique_weights(original).items():
        if tensor.shape == larger[name].shape:
            continue
        if tensor.shape[0] != size or larger[name].shape != (size + 1, *tensor.shape[1:]):
            raise UserError(
                f"{name} has no row per token: a model that orders its tokens by frequency must "
                f"keep its vocabulary"
            )
        names.add(name)
    return frozenset(names)


def _with_vocab_size(recipe: Recipe, vocab_size: int) -> Recipe:
    """Return a recipe with this vocabulary size; raise UserError if it is too small or large."""
    config = recipe.text.tokenizer
    try:
        tokenizer = type(config).model_validate({**dict(config), "vocab_size": vocab_size})
    except ValidationError as error:
        raise to_user_error(error, "the new vocabulary") from None
    text = recipe.text.model_copy(update={"tokenizer": tokenizer})
    return recipe.model_copy(update={"text": text})
