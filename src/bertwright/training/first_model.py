"""The model that a run starts with: drawn from the seed, or taken from a model folder."""

from pathlib import Path

import torch

from bertwright.errors import UserError
from bertwright.model.folder import load_model
from bertwright.model.model import Model
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.lengthening import lengthened


def first_model(recipe: Recipe, data: Data, start_from: Path | None) -> Model:
    """The model of a recipe for the vocabulary of a data set.

    Heads that the folder to start from does not have are drawn from the seed; what an encoder for
    longer rows has more is started from what is there.

    Errors: UserError when the folder holds another encoder, or had another tokenizer.
    """
    model = Model.build(recipe, data.tokenizer.size, data.tokenizer)
    if start_from is not None:
        _take_weights(model, start_from, data)
    return model


@torch.no_grad()
def _take_weights(model: Model, folder: Path, data: Data) -> None:
    found, tokenizer = load_model(folder)
    if tokenizer.hash != data.tokenizer.hash:
        raise UserError(
            f"{data.path} was prepared with another tokenizer than that of {folder}: prepare the "
            f"text with --tokenizer {folder}"
        )
    weights = lengthened(found, model)
    for name, parameter in model.named_parameters():
        there = weights.get(name)
        if there is not None and there.shape[:1] == (found.vocabulary_size,):
            # A published table may have more rows than there are pieces.
            there = there[: model.vocabulary_size]
        if there is not None and there.shape == parameter.shape:
            parameter.copy_(there)
        elif name.startswith("encoder."):
            raise UserError(
                f"--from {folder}: its encoder is not the recipe's ({name} differs): name no "
                f"recipe to train the model as it is"
            )
