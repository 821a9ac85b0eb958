"""A model folder: recipe.yaml, model.safetensors, tokenizer.json, training.json, README.md.

Nothing is pickled. The stored recipe is fully resolved, so a folder does not depend on the recipe
files of any version.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_file, write_text
from bertwright.data.hub.download import local_folder
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.memory import require_memory
from bertwright.models.model import Model
from bertwright.models.quantized_weights import QuantizationGrid, pack_state, unpack_state
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read_yaml
from bertwright.runtime.finite import require_finite

Arguments = ParamSpec("Arguments")
AnyModule = TypeVar("AnyModule", bound=nn.Module)

_DAMAGED_FILE_ERRORS = (
    SafetensorError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
)
"""Exceptions for truncated files and wrong tensor metadata."""

RECIPE_FILE, WEIGHTS_FILE, TRAINING_FILE, CARD_FILE, TASK_FILE = (
    "recipe.yaml",
    "model.safetensors",
    "training.json",
    "README.md",
    "task.json",
)


def is_fine_tuned(folder: Path) -> bool:
    """Return whether a folder holds a fine-tuned model."""
    return (folder / TASK_FILE).is_file()


def save_model(
    folder: Path, model: Model, tokenizer: Tokenizer, training: Mapping[str, Any] | None = None
) -> None:
    """Write a model folder, weights last, so that a new folder with weights is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    write_text(folder / RECIPE_FILE, model.recipe.as_yaml())
    write_text(folder / TRAINING_FILE, json.dumps(dict(training or {}), indent=2) + "\n")
    write_text(folder / CARD_FILE, model_card(model, tokenizer, training or {}))
    save_weights(folder / WEIGHTS_FILE, model)


def save_weights(
    path: Path, module: nn.Module, grids: Mapping[str, QuantizationGrid] | None = None
) -> None:
    """Write parameters and buffers; shared parameters are written once.

    Parameters are float32, or packed if they lie on the quantization grids in ``grids``.
    """
    tensors, metadata = pack_state(module, grids)
    with atomic_file(path) as temporary:
        save_file(tensors, str(temporary), metadata=metadata)


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder holds a bertwright model."""
    return (folder / RECIPE_FILE).is_file() and (folder / WEIGHTS_FILE).is_file()


def model_folder_error(folder: Path) -> UserError:
    """Return the error for a folder that holds no bertwright model, with the remedy."""
    if (folder / "config.json").is_file():
        return UserError(
            f"{folder} is a Hugging Face folder: convert it with 'bertwright import {folder} -o "
            f"DIR' and name DIR"
        )
    return UserError(
        f"{folder} is not a model folder: it needs {RECIPE_FILE} and {WEIGHTS_FILE} (finish an "
        f"interrupted training with pretrain --resume, or name one of its checkpoints/step-*)"
    )


def load_model(model_folder: Path) -> tuple[Model, Tokenizer]:
    """Read a model folder, or one of that name on the Hub, in float32.

    Errors: UserError if the folder is missing or incomplete, or if parameters do not match the
    recipe.
    """
    folder = local_folder(model_folder)
    if not is_model_folder(folder):
        raise model_folder_error(folder)
    tensors = read_tensors(folder / WEIGHTS_FILE)
    tokenizer = Tokenizer.load(folder)
    size = stored_vocab_size(tensors, tokenizer, str(folder))
    model = model_from_tensors(load_recipe(folder), size, tensors, str(folder / WEIGHTS_FILE))
    model.restrict_to_vocabulary(tokenizer)
    return model, tokenizer


def stored_vocab_size(tensors: Mapping[str, Tensor], tokenizer: Tokenizer, origin: str) -> int:
    """Return the number of rows of the stored table, or the tokenizer's size if there is none.

    Published tables may have more rows than the tokenizer has tokens. Errors: UserError if a table
    has fewer; ``origin`` names the file.
    """
    tables = (tensors.get(f"encoder.embeddings.tokens.{name}") for name in ("weight", "spelling"))
    vocab_size = next((len(table) for table in tables if table is not None), tokenizer.vocab_size)
    if vocab_size < tokenizer.vocab_size:
        raise UserError(
            f"{origin}: the tokenizer has {tokenizer.vocab_size:,} tokens and the model "
            f"{vocab_size:,}: copy the tokenizer that belongs to the model"
        )
    return vocab_size


def model_from_tensors(
    recipe: Recipe, vocab_size: int, tensors: dict[str, Tensor], origin: str
) -> Model:
    """Return a model with these parameters; UserError that names ``origin`` if they do not fit."""
    with torch.device("meta"):
        model = Model(recipe, vocab_size)
    load_tensors(model, tensors, origin)
    return model.eval()


def build_empty(
    build: Callable[Concatenate[Recipe, Arguments], AnyModule],
    recipe: Recipe,
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> AnyModule:
    """Return the module that ``build`` returns for a recipe, uninitialised on the CPU.

    Errors: UserError if the module is larger than this machine's memory.
    """
    with torch.device("meta"):
        module = build(recipe, *args, **kwargs)
    require_memory(module, recipe.name)
    allocate_parameters(module)
    return module


def allocate_parameters(module: nn.Module) -> None:
    """Allocate uninitialised CPU memory for the parameters and buffers of a meta module.

    ``to_empty`` would also work, but imports sympy, which takes as long as a short command.
    """
    for submodule in module.modules():
        for name, parameter in list(submodule.named_parameters(recurse=False)):
            data = torch.empty(parameter.shape, dtype=parameter.dtype)
            submodule.register_parameter(name, nn.Parameter(data, parameter.requires_grad))
        for name, buffer in list(submodule.named_buffers(recurse=False)):
            setattr(submodule, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def load_recipe(folder: Path) -> Recipe:
    """Return the resolved recipe of a model folder."""
    path = folder / RECIPE_FILE
    try:
        return Recipe.model_validate(read_yaml(path))
    except ValidationError as error:
        raise to_user_error(error, str(path)) from error


@torch.no_grad()
def load_tensors(module: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Copy tensors into the parameters and buffers of a module; allocate those on ``meta``.

    Errors: UserError that names ``origin`` for wrong names, shapes or dtypes, before anything is
    allocated.
    """
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if mismatched := sorted(state.keys() ^ tensors.keys()):
        if mismatched[0] in state:
            raise UserError(f"{origin} lacks the parameter {mismatched[0]}, which the recipe needs")
        raise UserError(
            f"{origin} holds the parameter {mismatched[0]}, which the recipe does not have"
        )
    for name, parameter in state.items():
        tensor = tensors[name]
        if parameter.shape != tensor.shape:
            expected, actual = tuple(parameter.shape), tuple(tensor.shape)
            raise UserError(f"{origin}: {name} has shape {actual}, the recipe needs {expected}")
        if parameter.is_floating_point() != tensor.is_floating_point():
            expected, actual = (str(t.dtype).removeprefix("torch.") for t in (parameter, tensor))
            raise UserError(f"{origin}: {name} has dtype {actual}, the recipe needs {expected}")
    if any(parameter.is_meta for parameter in state.values()):
        allocate_parameters(module)
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, parameter in state.items():
        parameter.copy_(tensors[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, with packed ones restored as weights.

    Errors: UserError for a missing or truncated file, and for NaN or infinity.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing: only safetensors weights are read")
    try:
        with safe_open(str(path), "pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
        tensors = unpack_state(load_file(str(path)), metadata)
    except _DAMAGED_FILE_ERRORS as error:
        raise UserError(f"{path} is damaged ({error}): copy it again") from error
    require_finite(tensors, path)
    return tensors


def model_card(model: Model, tokenizer: Tokenizer, training: Mapping[str, Any]) -> str:
    """Return the README.md of a model folder."""
    num_parameters = sum(p.numel() for p in model.parameters())
    recipe = model.recipe
    lines = [
        f"# {recipe.name}",
        "",
        f"An encoder trained with bertwright. Source of the recipe: {recipe.source or 'custom'}.",
        "",
        f"- parameters: {num_parameters:,}",
        f"- vocabulary: {len(tokenizer.ids):,} ({tokenizer.kind})",
        *(
            f"- {name.replace('_', ' ')}: {value}"
            for name, value in training.items()
            if _is_scalar(value)
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


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
