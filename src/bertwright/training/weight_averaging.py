"""Average the weights of several related models.

The mean of the last checkpoints of a run (Vaswani et al. 2017, section 6.1), or of runs that
started from the same model (Wortsman et al. 2022), is often better than each of them. A run with
``ema_decay`` does not need it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, require_new_folder
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.saving import (
    WEIGHTS_FILE,
    is_fine_tuned,
    is_model_folder,
    load_recipe,
    model_from_tensors,
    read_tensors,
    save_model,
    stored_vocab_size,
)
from bertwright.recipes import Recipe
from bertwright.recipes.comparison import differences
from bertwright.training.checkpoint_model import (
    is_checkpoint,
    load_checkpoint_model,
    run_of_checkpoint,
)

REQUIRED_EQUAL_AXES = ("text", "encoder", "output")
"""Recipe axes that must agree for two models to have the same parameters."""


@dataclass(frozen=True)
class WeightSource:
    """Weights on disk, with their recipe and tokenizer."""

    path: Path
    recipe: Recipe
    tokenizer: Tokenizer

    @staticmethod
    def open(path: Path) -> "WeightSource":
        """Open a model folder, or a checkpoint of a run.

        Errors: UserError for anything else, and for a fine-tuned model.
        """
        path = path.resolve()
        if is_fine_tuned(path):
            raise UserError(
                f"{path} is fine-tuned for a task, and average takes pre-trained models: average "
                f"predictions with bertwright predict --ensemble"
            )
        if not is_model_folder(path) and not is_checkpoint(path):
            raise UserError(f"{path} is neither a model folder nor a checkpoint of a run")
        folder = path if is_model_folder(path) else run_of_checkpoint(path)
        return WeightSource(path, load_recipe(folder), Tokenizer.load(folder))

    def load_weights(self) -> Mapping[str, Tensor]:
        """Return float32 weights by name, buffers included."""
        if is_model_folder(self.path):
            return read_tensors(self.path / WEIGHTS_FILE)
        model, _ = load_checkpoint_model(self.path)
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def average_models(paths: Sequence[Path], output: Path) -> int:
    """Write the average of several models; return its number of parameters.

    ``paths`` are model folders or checkpoints of runs. The recipe is taken from the first.
    Errors: UserError if the models differ in more than their training.
    """
    if len(paths) < 2:
        raise UserError("averaging needs at least two models: name more folders")
    require_new_folder(output)
    sources = [WeightSource.open(path) for path in paths]
    first = sources[0]
    for other in sources[1:]:
        _check_compatible(first, other)
    mean, last = mean_weights(sources)
    origin = str(first.path)
    model = model_from_tensors(
        first.recipe, stored_vocab_size(mean, first.tokenizer, origin), mean, origin
    )
    for name, buffer in model.named_buffers():
        buffer.copy_(last[name])  # a mean of random features is none
    metadata = {"recipe": first.recipe.name, "averaged_models": [str(path) for path in paths]}
    with atomic_folder(output) as folder:
        save_model(folder, model, first.tokenizer, metadata)
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def mean_weights(
    sources: Sequence[WeightSource],
) -> tuple[dict[str, Tensor], Mapping[str, Tensor]]:
    """Return the float32 mean of every tensor, and the tensors of the last source.

    Means are summed in float64; integers must be equal. Errors: UserError if names, shapes or
    integer tensors differ.
    """
    sums: dict[str, Tensor] = {}
    weights: Mapping[str, Tensor] = {}
    for source in sources:
        weights = source.load_weights()
        different = sorted(weights.keys() ^ sums.keys()) if sums else []
        different += [n for n in sums if n in weights and not _can_average(weights[n], sums[n])]
        if different:
            raise UserError(
                f"{source.path} has other parameters than {sources[0].path}: {different[0]} differs"
            )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
            else:
                sums[name] = tensor
    mean = {
        name: (total / len(sources)).float() if total.is_floating_point() else total
        for name, total in sums.items()
    }
    return mean, weights


def _can_average(tensor: Tensor, other: Tensor) -> bool:
    """Return whether two tensors can be averaged: equal shapes, or equal integers."""
    if tensor.is_floating_point() and other.is_floating_point():
        return tensor.shape == other.shape
    return torch.equal(tensor, other)


def _check_compatible(first: WeightSource, other: WeightSource) -> None:
    if first.tokenizer.hash != other.tokenizer.hash:
        raise UserError(
            f"{other.path} has another tokenizer than {first.path}: they cannot be averaged"
        )
    for difference in differences(first.recipe, other.recipe):
        if difference.axis.split(".")[0] in REQUIRED_EQUAL_AXES:
            raise UserError(
                f"{other.path} differs from {first.path} in {difference.axis} "
                f"({difference.second}, not {difference.first}): they cannot be averaged"
            )
