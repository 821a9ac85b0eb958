"""Read the tensors of a stock folder: sharded or not, by current names, tied tensors once."""

from pathlib import Path

import torch

from bertwright.core.errors import UserError
from bertwright.core.files import loads_json
from bertwright.interop.huggingface.families.config_keys import StockConfig
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import BASE
from bertwright.interop.huggingface.tensor_names import StateDict
from bertwright.models.saving import read_tensors

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")
IGNORED_BUFFERS = ("position_ids", "token_type_ids", "inv_freq", ".attn.bias", ".attn.masked_bias")
"""Buffers in old files that stock classes now compute."""
STATED_TIE_KEY = "stated_tie_word_embeddings"
"""Key that keeps the original tie_word_embeddings of a configuration."""
TENSORFLOW_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""Names of norm parameters in files converted from TensorFlow."""


def read_weights(folder: Path) -> StateDict:
    """Return every tensor of a folder in float32, except buffers.

    Raises UserError for missing weights and for dtypes that are not floating point.
    """
    index = folder / INDEX_FILE
    if index.is_file():
        try:
            index_json = loads_json(index.read_text(encoding="utf-8"))
            names = sorted({Path(file).name for file in index_json["weight_map"].values()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{index} is damaged ({error}): copy it again") from None
    elif (folder / WEIGHTS_FILE).is_file():
        names = [WEIGHTS_FILE]
    else:
        pickle_file = next(
            (file for pattern in PICKLE_PATTERNS for file in folder.glob(pattern)), None
        )
        problem = (
            f"its weights are in {pickle_file.name}, which can run code when loaded"
            if pickle_file
            else ""
        )
        raise UserError(f"{problem or 'it has no weights'}: only {WEIGHTS_FILE} is supported")
    tensors: StateDict = {}
    for name in names:
        tensors |= read_tensors(folder / name)
    weights = {n: t for n, t in tensors.items() if not n.endswith(IGNORED_BUFFERS)}
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{name} has dtype {dtype}: weights must be floating-point")
    return {name: tensor.float() for name, tensor in weights.items()}


def resolve_ties(
    family: ModelFamily, tensors: StateDict, config: StockConfig
) -> tuple[StateDict, StockConfig]:
    """Return tensors by current names, tied ones once, and the config with the actual tie.

    A file may store a tied table twice, or under any of its names. As in stock classes, a separate
    output table takes precedence, and tables that differ are not tied, whatever the configuration
    states.
    """
    tensors = {_modern_name(name): tensor for name, tensor in tensors.items()}
    tensors = _deduplicate(family, _add_token_embedding(family, tensors, config), config)
    bias = tensors.pop(f"{family.output_layer_name}.bias", None)
    if bias is not None and family.output_bias_name is not None:
        tensors[family.output_bias_name] = bias
    decoder = tensors.get(f"{family.output_layer_name}.weight")
    stated = tied = bool(config.get("tie_word_embeddings", True))
    if decoder is not None and tied:
        table = tensors.get(family.token_embedding_name)
        tied = table is not None and torch.equal(decoder, table)
        if tied:
            del tensors[f"{family.output_layer_name}.weight"]
    return tensors, {**config, "tie_word_embeddings": tied, STATED_TIE_KEY: stated}


def _add_token_embedding(family: ModelFamily, tensors: StateDict, config: StockConfig) -> StateDict:
    """Add the token embedding under its own name if it is stored only under an alias."""
    table = family.token_embedding_name
    bare = not any(name.startswith(f"{family.base_model_prefix}.") for name in tensors)
    name = table.removeprefix(f"{family.base_model_prefix}.") if bare else table
    if name in tensors:
        return tensors
    aliases = [*family.embedding_aliases]
    if config.get("tie_word_embeddings", True):
        aliases.append(f"{family.output_layer_name}.weight")
    candidates = [n for alias in aliases for n in _names_with_and_without_prefix(family, alias)]
    stored = next((n for n in candidates if n in tensors), None)
    return tensors if stored is None else {**tensors, name: tensors[stored]}


def _names_with_and_without_prefix(family: ModelFamily, name: str) -> tuple[str, str]:
    """Return a name as it is in a class with a head, and as it is in a bare class."""
    return name, name.removeprefix(f"{family.base_model_prefix}.")


def _deduplicate(family: ModelFamily, tensors: StateDict, config: StockConfig) -> StateDict:
    """Remove duplicates of the token embedding and ignored tensors.

    Tensors of a bare class get the prefix of the class with a head if that head has no parameters.
    """
    names = _names_with_and_without_prefix(family, family.token_embedding_name)
    table = next((tensors[name] for name in names if name in tensors), None)
    aliases = {
        variant
        for name in family.embedding_aliases
        for variant in _names_with_and_without_prefix(family, name)
    }
    for name in aliases & tensors.keys():
        if table is not None and not torch.equal(tensors[name], table):
            raise UserError(
                f"{name} differs from {family.token_embedding_name}: a model has one table"
            )
    removed = aliases | {*family.ignored_tensors}
    tensors = {name: t for name, t in tensors.items() if name not in removed}
    architecture = next(iter(config.get("architectures") or [""]))
    head_type = architecture.removeprefix(family.class_name)
    has_no_prefix = not any(name.startswith(f"{family.base_model_prefix}.") for name in tensors)
    has_no_output = family.output_bias_name is None and not any(
        name.startswith(f"{family.output_layer_name}.") for name in tensors
    )
    has_head = head_type in {*family.pretraining_head_types.values()} - {BASE}
    if has_no_prefix and has_no_output and has_head:
        return {f"{family.base_model_prefix}.{name}": tensor for name, tensor in tensors.items()}
    return tensors


def _modern_name(name: str) -> str:
    for old, new in TENSORFLOW_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
