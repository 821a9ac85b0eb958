"""The tensors of a stock folder: from one file or several, by today's names, each once."""

import json
from pathlib import Path

import torch

from bertwright.errors import UserError
from bertwright.interop.huggingface.family import Config, Family
from bertwright.interop.huggingface.renaming import Tensors
from bertwright.model.folder import read_tensors

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
BUFFERS = ("position_ids", "token_type_ids", "inv_freq")
"""What old files hold and the stock classes compute by themselves."""
TENSORFLOW_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""Names of a norm's parameters in files that were converted from TensorFlow."""


def read_weights(folder: Path) -> Tensors:
    """Every tensor of a folder, in float32 and without buffers; of one file or of several."""
    index = folder / INDEX
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    elif (folder / WEIGHTS).is_file():
        names = [WEIGHTS]
    else:
        pickle = next((file for pattern in PICKLES for file in folder.glob(pattern)), None)
        held = f"its weights are in {pickle.name}, which can run code when read" if pickle else ""
        raise UserError(f"{held or 'it has no weights'}: only {WEIGHTS} is read")
    tensors: Tensors = {}
    for name in names:
        tensors |= read_tensors(folder / name)
    return {n: t.float() for n, t in tensors.items() if not n.endswith(BUFFERS)}


def settled(family: Family, tensors: Tensors, config: Config) -> tuple[Tensors, Config]:
    """The tensors by today's names, each once, and whether the two tables of pieces are one.

    A file may hold what is tied a second time. As in the stock classes, what the decoder states
    counts, and tables that differ are not tied whatever the configuration says.
    """
    tensors = {_of_today(name): t for name, t in tensors.items() if name not in family.repeated}
    bias = tensors.pop(f"{family.decoder}.bias", None)
    if bias is not None and family.output_bias is not None:
        tensors[family.output_bias] = bias
    decoder = tensors.get(f"{family.decoder}.weight")
    tied = bool(config.get("tie_word_embeddings", True))
    if decoder is not None and tied:
        table = tensors.get(family.table_of_pieces)
        tied = table is not None and torch.equal(decoder, table)
        if tied:
            del tensors[f"{family.decoder}.weight"]
    return tensors, {**config, "tie_word_embeddings": tied}


def _of_today(name: str) -> str:
    for old, new in TENSORFLOW_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
