"""A model as a folder: recipe.yaml, model.safetensors, tokenizer.json, training.json, README.md.

No pickles. What is stored is the resolved recipe, so a folder never depends on the recipe files of
another version.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertwright.axes import explain
from bertwright.errors import UserError
from bertwright.files import atomic_file, write_text
from bertwright.model.finite import require_finite
from bertwright.model.grids import Grid
from bertwright.model.model import Model
from bertwright.model.packing import stored, unpacked
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read_yaml
from bertwright.text.tokenizers import Tokenizer

_DAMAGE = (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError)
"""What is raised by a file that is cut short, or whose description of its tensors is wrong."""

RECIPE, WEIGHTS, TRAINING, CARD = "recipe.yaml", "model.safetensors", "training.json", "README.md"


def save_model(
    folder: Path, model: Model, tokenizer: Tokenizer, training: Mapping[str, Any] | None = None
) -> None:
    """Write a model into a folder; the weights come last, so a new folder with weights is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    write_text(folder / RECIPE, model.recipe.as_yaml())
    write_text(folder / TRAINING, json.dumps(dict(training or {}), indent=2) + "\n")
    write_text(folder / CARD, model_card(model, tokenizer, training or {}))
    save_weights(folder / WEIGHTS, model)


def save_weights(path: Path, module: nn.Module, grids: Mapping[str, Grid] | None = None) -> None:
    """Write the parameters of a module as float32, or packed where they stand on their grids, a
    shared storage once, and its buffers."""
    tensors, about = stored(module, grids)
    with atomic_file(path) as temporary:
        save_file(tensors, str(temporary), metadata=about)


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model of ours."""
    return (folder / RECIPE).is_file() and (folder / WEIGHTS).is_file()


def load_model(folder: Path) -> tuple[Model, Tokenizer]:
    """Read a model folder, in float32.

    Errors: UserError for a folder that is missing, cut short, or holds other parameters.
    """
    if not is_model(folder):
        raise UserError(
            f"{folder} is not a model folder: it needs {RECIPE} and {WEIGHTS} (a training that was "
            f"cut off is finished with pretrain --resume)"
        )
    tensors = read_tensors(folder / WEIGHTS)
    tokenizer = Tokenizer.load(folder)
    size = num_pieces(tensors, tokenizer, str(folder))
    model = filled(load_recipe(folder), size, tensors, str(folder / WEIGHTS))
    model.keep_tokens(tokenizer)
    return model, tokenizer


def num_pieces(tensors: Mapping[str, Tensor], tokenizer: Tokenizer, origin: str) -> int:
    """How many pieces a stored model knows: a published table may have more rows than there are
    pieces, and characters are as many whatever the pieces.

    Errors: UserError that names the origin where the tokenizer has pieces that the model lacks.
    """
    tables = (tensors.get(f"encoder.embeddings.pieces.{name}") for name in ("weight", "spelling"))
    known = next((len(table) for table in tables if table is not None), tokenizer.size)
    if known < tokenizer.size:
        raise UserError(
            f"{origin}: the tokenizer has {tokenizer.size:,} pieces and the model {known:,}: copy "
            f"the tokenizer that belongs to it"
        )
    return known


def filled(recipe: Recipe, vocabulary_size: int, tensors: dict[str, Tensor], origin: str) -> Model:
    """A model of these parameters; UserError that names their origin where others are needed."""
    with torch.device("meta"):
        model = Model(recipe, vocabulary_size)
    fill(model, tensors, origin)
    return model.eval()


def make_room(module: nn.Module) -> None:
    """Put parameters and buffers of a module that has shapes only on the CPU, yet to be filled.

    ``to_empty`` does so too, and first imports symbolic algebra, which takes as long as the rest of
    a short command.
    """
    for own in module.modules():
        for name, parameter in list(own.named_parameters(recurse=False)):
            room = torch.empty(parameter.shape, dtype=parameter.dtype)
            own.register_parameter(name, nn.Parameter(room, parameter.requires_grad))
        for name, buffer in list(own.named_buffers(recurse=False)):
            setattr(own, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def load_recipe(folder: Path) -> Recipe:
    """The resolved recipe of a model folder."""
    path = folder / RECIPE
    try:
        return Recipe.model_validate(read_yaml(path))
    except ValidationError as error:
        raise explain(error, str(path)) from error


@torch.no_grad()
def fill(module: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Fill the parameters and the buffers of a module, which may have shapes only so far.

    Errors: UserError that names the origin where other names, shapes or kinds of numbers are
    needed; nothing is allocated before.
    """
    wanted = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if odd := sorted(wanted.keys() ^ tensors.keys()):
        if odd[0] in wanted:
            raise UserError(f"{origin} lacks the parameter {odd[0]}, which the recipe asks for")
        raise UserError(f"{origin} holds the parameter {odd[0]}, which the recipe does not have")
    for name, parameter in wanted.items():
        tensor = tensors[name]
        if parameter.shape != tensor.shape:
            here, there = tuple(parameter.shape), tuple(tensor.shape)
            raise UserError(f"{origin}: {name} has shape {there}, the recipe asks for {here}")
        if parameter.is_floating_point() != tensor.is_floating_point():
            here, there = (str(t.dtype).removeprefix("torch.") for t in (parameter, tensor))
            raise UserError(f"{origin}: {name} holds {there} numbers, the recipe asks for {here}")
    if any(parameter.is_meta for parameter in wanted.values()):
        make_room(module)
        wanted = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, parameter in wanted.items():
        parameter.copy_(tensors[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, packed ones as weights.

    Errors: UserError where it is missing or cut short, or holds NaN or infinity.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing: only safetensors weights are read")
    try:
        with safe_open(str(path), "pt") as file:
            about: dict[str, str] = file.metadata() or {}
        tensors = unpacked(load_file(str(path)), about)
    except _DAMAGE as error:
        raise UserError(f"{path} is damaged ({error}): copy it again") from error
    require_finite(tensors, path)
    return tensors


def model_card(model: Model, tokenizer: Tokenizer, training: Mapping[str, Any]) -> str:
    """The README.md of a model folder."""
    number = sum(p.numel() for p in model.parameters())
    recipe = model.recipe
    lines = [
        f"# {recipe.name}",
        "",
        f"An encoder made with bertwright. Source of the recipe: {recipe.source or 'own'}.",
        "",
        f"- parameters: {number:,}",
        f"- vocabulary: {len(tokenizer.ids):,} ({tokenizer.kind})",
        *(
            f"- {name.replace('_', ' ')}: {value}"
            for name, value in training.items()
            if _small(value)
        ),
        "",
        "```python",
        "import bertwright as bw",
        "",
        'model = bw.load("this folder")',
        'vectors = model.embed(["A sentence.", "Another one."])',
        "```",
    ]
    return "\n".join(lines) + "\n"


def _small(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
