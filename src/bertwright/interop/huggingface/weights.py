"""The tensors of a stock folder: from one file or several, by today's names, each once."""

from pathlib import Path

import torch

from bertwright.errors import UserError
from bertwright.files import json_value
from bertwright.interop.huggingface.family import Config, Family
from bertwright.interop.huggingface.purposes import BARE
from bertwright.interop.huggingface.renaming import Tensors
from bertwright.model.folder import read_tensors

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
BUFFERS = ("position_ids", "token_type_ids", "inv_freq", ".attn.bias", ".attn.masked_bias")
"""What old files hold and the stock classes compute by themselves."""
STATED_TIE = "stated_tie_word_embeddings"
"""Under which key a configuration keeps what it said of that itself."""
TENSORFLOW_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""Names of a norm's parameters in files that were converted from TensorFlow."""


def read_weights(folder: Path) -> Tensors:
    """Return every tensor of a folder, in float32 and without buffers; of one file or of several.

    Errors: UserError for weights that are no floating-point numbers.
    """
    index = folder / INDEX
    if index.is_file():
        try:
            stated = json_value(index.read_text(encoding="utf-8"))
            names = sorted({Path(file).name for file in stated["weight_map"].values()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{index} is damaged ({error}): copy it again") from None
    elif (folder / WEIGHTS).is_file():
        names = [WEIGHTS]
    else:
        pickle = next((file for pattern in PICKLES for file in folder.glob(pattern)), None)
        held = f"its weights are in {pickle.name}, which can run code when read" if pickle else ""
        raise UserError(f"{held or 'it has no weights'}: only {WEIGHTS} is read")
    tensors: Tensors = {}
    for name in names:
        tensors |= read_tensors(folder / name)
    weights = {n: t for n, t in tensors.items() if not n.endswith(BUFFERS)}
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{name} holds {kind} numbers: weights are floating-point numbers")
    return {name: tensor.float() for name, tensor in weights.items()}


def settled(family: Family, tensors: Tensors, config: Config) -> tuple[Tensors, Config]:
    """The tensors by today's names, each once, and whether the two tables of pieces are one.

    A file may hold what is tied a second time, or under any of its names alone. As in the stock
    classes, what the decoder states counts, and tables that differ are not tied whatever the
    configuration says.
    """
    tensors = {_of_today(name): tensor for name, tensor in tensors.items()}
    tensors = _once(family, _with_table(family, tensors, config), config)
    bias = tensors.pop(f"{family.decoder}.bias", None)
    if bias is not None and family.output_bias is not None:
        tensors[family.output_bias] = bias
    decoder = tensors.get(f"{family.decoder}.weight")
    stated = tied = bool(config.get("tie_word_embeddings", True))
    if decoder is not None and tied:
        table = tensors.get(family.table_of_pieces)
        tied = table is not None and torch.equal(decoder, table)
        if tied:
            del tensors[f"{family.decoder}.weight"]
    return tensors, {**config, "tie_word_embeddings": tied, STATED_TIE: stated}


def _with_table(family: Family, tensors: Tensors, config: Config) -> Tensors:
    """Tensors with the table of pieces under its name, where they hold it under another alone."""
    table = family.table_of_pieces
    bare = not any(name.startswith(f"{family.prefix}.") for name in tensors)
    name = table.removeprefix(f"{family.prefix}.") if bare else table
    if name in tensors:
        return tensors
    aliases = [*family.embedded]
    if config.get("tie_word_embeddings", True):
        aliases.append(f"{family.decoder}.weight")
    for alias in (own for each in aliases for own in _with_and_without(family, each)):
        if alias in tensors:
            return {**tensors, name: tensors[alias]}
    return tensors


def _with_and_without(family: Family, name: str) -> tuple[str, str]:
    """A name within a class that has a head, and within a bare one."""
    return name, name.removeprefix(f"{family.prefix}.")


def _once(family: Family, tensors: Tensors, config: Config) -> Tensors:
    """Tensors without what is there twice, and with the prefix that a class with a head gives them,
    where the head has nothing of its own and was left out."""
    tables = (tensors.get(own) for own in _with_and_without(family, family.table_of_pieces))
    table = next((table for table in tables if table is not None), None)
    embedded = {own for name in family.embedded for own in _with_and_without(family, name)}
    for name in embedded & tensors.keys():
        if table is not None and not torch.equal(tensors[name], table):
            raise UserError(f"{name} is not {family.table_of_pieces}: what is read has one table")
    left_out = embedded | {*family.unread}
    tensors = {name: t for name, t in tensors.items() if name not in left_out}
    architecture = next(iter(config.get("architectures") or [""]))
    stated = architecture.removeprefix(family.class_name)
    bare = not any(name.startswith(f"{family.prefix}.") for name in tensors)
    headless = family.output_bias is None and not any(
        name.startswith(f"{family.decoder}.") for name in tensors
    )
    if bare and headless and stated in {*family.purposes.values()} - {BARE}:
        return {f"{family.prefix}.{name}": tensor for name, tensor in tensors.items()}
    return tensors


def _of_today(name: str) -> str:
    for old, new in TENSORFLOW_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
