"""Read a GGUF file that bertwright wrote: recipe and tokenizer from its keys, then the tensors."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from bertwright.core.config import InferencePrecision, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.optional_dependencies import require_library
from bertwright.data.tokenization.backend import read_backend
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer
from bertwright.interop.gguf import GGUF_FILE
from bertwright.interop.gguf.architectures import ARCHITECTURES
from bertwright.interop.gguf.exporter import RECIPE_KEY, ROLES_KEY, TASK_KEY, TOKENIZER_KEY
from bertwright.interop.huggingface.tensor_names import StateDict, from_stock_names
from bertwright.models.saving import load_tensors, model_from_tensors, stored_vocab_size
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.yaml_values import parse_yaml
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.task_metadata import TaskMetadata
from bertwright.tasks.task_model import TaskModel

POSITION_TABLE = "encoder.embeddings.positions.table.weight"


def load_gguf(path: Path, precision: InferencePrecision | None = None) -> TextModel:
    """Return the model of a GGUF file or of the folder of an export, weights in float32.

    Raises UserError for a damaged file and for one that bertwright did not write, and MissingExtra
    without ``gguf``.
    """
    require_library("gguf", "gguf")
    file = path if path.is_file() else path / GGUF_FILE
    keys, tensors = _read_file(file)
    if missing := [key for key in (RECIPE_KEY, TOKENIZER_KEY, ROLES_KEY) if key not in keys]:
        raise UserError(
            f"{file} has no key {missing[0]}, so bertwright did not write it: import the model "
            f"from its Hugging Face folder"
        )
    architecture = ARCHITECTURES.get(keys["general.architecture"])
    if architecture is None:
        raise UserError(f"{file} is damaged (unknown architecture): export the model again")
    tokenizer = _read_tokenizer(file, keys[TOKENIZER_KEY], keys[ROLES_KEY])
    try:
        recipe = Recipe.model_validate(parse_yaml(keys[RECIPE_KEY]))
        task = TaskMetadata.model_validate_json(keys[TASK_KEY]) if TASK_KEY in keys else None
    except ValidationError as error:
        raise to_user_error(error, str(file)) from error
    except ValueError as error:
        raise UserError(f"{file}: its recipe is damaged ({error}): copy it again") from error
    ours = from_stock_names(architecture.table + architecture.head_table, tensors)
    if POSITION_TABLE in ours:
        offset = getattr(recipe.encoder.positions, "offset", 0)
        unused_rows = ours[POSITION_TABLE].new_zeros(offset, ours[POSITION_TABLE].shape[1])
        ours[POSITION_TABLE] = torch.cat((unused_rows, ours[POSITION_TABLE]))
    vocab_size = stored_vocab_size(ours, tokenizer, str(file))
    if task is None:
        model = model_from_tensors(recipe, vocab_size, ours, str(file))
        return TextModel(model, tokenizer, precision)
    with torch.device("meta"):
        task_model = TaskModel(recipe, vocab_size, task.head_spec, task.adaptation)
    for name in ("head.classifier.weight", "head.classifier.bias"):
        ours[name] = ours[name] * task.temperature
    load_tensors(task_model, ours, str(file))
    settings = task.task, task.max_length, precision, task.temperature
    model = FineTunedModel(task_model, tokenizer, *settings)
    model.conformal = task.conformal
    return model


def _read_file(file: Path) -> tuple[dict[str, Any], StateDict]:
    """Return the text keys and the tensors of a file; UserError if it is damaged."""
    import gguf

    keys: dict[str, Any] = {}
    tensors: StateDict = {}
    try:
        reader: Any = gguf.GGUFReader(str(file))
        for name in ("general.architecture", RECIPE_KEY, TASK_KEY, TOKENIZER_KEY, ROLES_KEY):
            if name in reader.fields:
                keys[name] = str(reader.fields[name].contents())
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            shape = [int(size) for size in reversed(tensor.shape)]
            array = np.array(values, np.float32).reshape(shape)
            tensors[tensor.name] = torch.from_numpy(array)
    except Exception as error:  # the reader has no exceptions of its own
        raise UserError(f"{file} is damaged ({error}): copy it again") from error
    return keys, tensors


def _read_tokenizer(file: Path, tokenizer_json: str, roles_json: str) -> Tokenizer:
    """Return the tokenizer in the keys of a file, with the checks of every tokenizer.json."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_file = Path(folder) / TOKENIZER_FILE
        tokenizer_file.write_text(tokenizer_json, encoding="utf-8")
        try:
            return Tokenizer(read_backend(tokenizer_file), json.loads(roles_json))
        except (UserError, ValueError) as error:
            raise UserError(f"{file}: its tokenizer is damaged ({error}): copy it again") from error
