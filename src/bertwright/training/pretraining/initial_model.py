"""The initial model of a run: random, or with the weights of a model folder."""

from pathlib import Path

import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.saving import load_model
from bertwright.modules.attention.positions import LearnedPositionsConfig
from bertwright.recipes import Recipe


def initial_model(recipe: Recipe, data: Dataset, start_from: Path | None) -> Model:
    """Build the model of a recipe for the vocabulary of a data set.

    Heads missing in ``start_from`` are initialised from the seed; additional parameters of an
    encoder for longer sequences are derived from the existing ones.

    Errors: UserError if the folder has another encoder or tokenizer.
    """
    model = Model.build(recipe, data.tokenizer.vocab_size, data.tokenizer)
    if start_from is not None:
        _copy_weights(model, start_from, data)
    return model


@torch.no_grad()
def _copy_weights(model: Model, folder: Path, data: Dataset) -> None:
    source, tokenizer = load_model(folder)
    if tokenizer.hash != data.tokenizer.hash:
        raise UserError(
            f"{data.path} was prepared with another tokenizer than {folder}: prepare the text with "
            f"--tokenizer {folder}"
        )
    weights = extended_weights(source, model)
    for name, parameter in model.named_parameters():
        weight = weights.get(name)
        if weight is not None and weight.shape[:1] == (source.vocab_size,):
            # A published table may have more rows than the tokenizer has tokens.
            weight = weight[: model.vocab_size]
        if weight is not None and weight.shape == parameter.shape:
            parameter.copy_(weight)
        elif name.startswith("encoder."):
            raise UserError(
                f"--from {folder}: its encoder differs from the recipe's ({name}): omit the recipe "
                f"to continue training the model unchanged"
            )


POSITION_TABLE = "encoder.embeddings.positions.table.weight"
GLOBAL_PROJECTIONS = "global_attention."


def extended_weights(source: Model, model: Model) -> dict[str, Tensor]:
    """Return the parameters of ``source`` by name, extended to fit ``model``.

    A longer position table repeats the shorter one; the projections of global attention start as
    copies of the ordinary ones.
    """
    weights: dict[str, Tensor] = dict(source.named_parameters())
    longer, shorter = model.recipe.encoder.positions, source.recipe.encoder.positions
    if isinstance(longer, LearnedPositionsConfig) and isinstance(shorter, LearnedPositionsConfig):
        weights[POSITION_TABLE] = _repeat_positions(weights[POSITION_TABLE], shorter, longer)
    for name, _ in model.named_parameters():
        if GLOBAL_PROJECTIONS in name and name not in weights:
            projection = weights.get(name.replace(GLOBAL_PROJECTIONS, ""))
            if projection is not None:
                weights[name] = projection
    return weights


def _repeat_positions(
    table: Tensor, shorter: LearnedPositionsConfig, longer: LearnedPositionsConfig
) -> Tensor:
    """Repeat the rows of the table, except for those before the first position."""
    if longer.size <= shorter.size or longer.offset != shorter.offset:
        return table
    unused, rows = table[: shorter.offset], table[shorter.offset :]
    num_repeats = -(-longer.size // len(rows))
    return torch.cat((unused, rows.repeat(num_repeats, 1)[: longer.size]))
