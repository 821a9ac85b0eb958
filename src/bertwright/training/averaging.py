"""The mean of the weights of several models that stand near each other.

The last checkpoints of a run (Vaswani et al. 2017, section 6.1), or runs that went on from the same
model (Wortsman et al. 2022): their mean is often better than each. A run that keeps a moving
average of its own (``training.moving_average``) needs no second one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.model.folder import (
    WEIGHTS,
    filled,
    is_model,
    load_recipe,
    num_pieces,
    read_tensors,
    save_model,
)
from bertwright.recipes import Recipe
from bertwright.recipes.comparison import differences
from bertwright.text.tokenizers import Tokenizer
from bertwright.training.checkpoints import open_whole

PARAMETERS = "parameters"

SHARED_AXES = ("text", "encoder", "output")
"""What must be alike for the same number to mean the same in two models."""


@dataclass(frozen=True)
class Source:
    """Weights on the disk, and the folder that says what they are."""

    path: Path
    recipe: Recipe
    tokenizer: Tokenizer

    @staticmethod
    def of(path: Path) -> "Source":
        """A model folder, or a checkpoint of a run that has ended.

        Errors: UserError for anything else.
        """
        path = path.resolve()
        folder = path if is_model(path) else path.parent.parent
        if not is_model(folder):
            raise UserError(
                f"{path} is neither a model folder nor a checkpoint of a run that has ended "
                f"(finish the run with pretrain --resume)"
            )
        return Source(path, load_recipe(folder), Tokenizer.load(folder))

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters by name, float32; a checkpoint has no more, so that what is stored beside
        them is that of its run's model."""
        if is_model(self.path):
            return read_tensors(self.path / WEIGHTS)
        checkpoint = open_whole(self.path)
        if checkpoint is None:
            raise UserError(f"{self.path} is damaged, or no checkpoint: leave it out")
        beside = read_tensors(self.path.parent.parent / WEIGHTS)
        return {**beside, **checkpoint.tensors(PARAMETERS)}


def average(paths: Sequence[Path], out: Path) -> int:
    """Write the model whose weights are the mean; returns how many parameters it has.

    ``paths`` are model folders, or checkpoints of runs that have ended. The recipe is that of the
    first.

    Errors: UserError where the models differ in anything but how they were trained.
    """
    if len(paths) < 2:
        raise UserError("a mean needs two models at least: name more folders")
    require_free(out)
    sources = [Source.of(path) for path in paths]
    first = sources[0]
    for other in sources[1:]:
        _check_alike(first, other)
    mean = mean_of(sources)
    origin = str(first.path)
    model = filled(first.recipe, num_pieces(mean, first.tokenizer, origin), mean, origin)
    about = {"recipe": first.recipe.name, "averaged": [str(path) for path in paths]}
    with atomic_folder(out) as folder:
        save_model(folder, model, first.tokenizer, about)
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def mean_of(sources: Sequence[Source]) -> dict[str, Tensor]:
    """Return the mean of every parameter, summed in float64, as float32; whole numbers, which are
    no parameters, are those of the first.

    Errors: UserError where names, shapes or whole numbers differ.
    """
    sums: dict[str, Tensor] = {}
    for source in sources:
        weights = source.weights()
        odd = sorted(weights.keys() ^ sums.keys()) if sums else []
        odd += [n for n in sums if n in weights and not _alike(weights[n], sums[n])]
        if odd:
            raise UserError(
                f"{source.path} has other parameters than {sources[0].path}: {odd[0]} differs"
            )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
            else:
                sums[name] = tensor
    return {
        name: (total / len(sources)).float() if total.is_floating_point() else total
        for name, total in sums.items()
    }


def _alike(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors have a mean."""
    if tensor.is_floating_point() and other.is_floating_point():
        return tensor.shape == other.shape
    return torch.equal(tensor, other)


def _check_alike(first: Source, other: Source) -> None:
    if first.tokenizer.hash != other.tokenizer.hash:
        raise UserError(
            f"{other.path} has another tokenizer than {first.path}: their weights have no mean"
        )
    for found in differences(first.recipe, other.recipe):
        if found.axis.split(".")[0] in SHARED_AXES:
            raise UserError(
                f"{other.path} differs from {first.path} in {found.axis} ({found.second}, not "
                f"{found.first}): their weights have no mean"
            )
