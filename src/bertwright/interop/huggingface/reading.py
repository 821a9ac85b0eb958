"""From a Hugging Face folder to a model of ours."""

import json
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from bertwright.axes import explain
from bertwright.errors import UserError
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.interop.huggingface.family import Config, Family
from bertwright.interop.huggingface.renaming import Tensors, to_ours
from bertwright.interop.huggingface.tokenizer_files import lowercases, read_tokenizer
from bertwright.model import Model
from bertwright.model.folder import filled, read_tensors
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read
from bertwright.text.tokenizers import Tokenizer

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
BUFFERS = ("position_ids", "token_type_ids", "inv_freq")
"""What old files hold and the stock classes compute by themselves."""
TENSORFLOW_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""Names of a norm's parameters in files that were converted from TensorFlow."""


def is_huggingface(folder: Path) -> bool:
    """Whether a folder describes its model as stock classes do."""
    return (folder / CONFIG).is_file()


def import_folder(folder: Path) -> tuple[Model, Tokenizer]:
    """Read a folder of a stock BERT, RoBERTa or ModernBERT, in float32.

    The recipe states what the weights hold: a folder without a head over the vocabulary becomes a
    model without objectives, and its pooler, if it has one, is kept.

    Errors: UserError for a folder that is none, is damaged, holds pickles, or whose configuration
    has no place among the axes.
    """
    config = read_config(folder)
    family = _family(folder, config)
    try:
        tensors, config = settled(family, read_weights(folder), config)
        named = _by_our_names(family, tensors)
        settings = family.settings(config)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    tokenizer = read_tokenizer(folder)
    recipe = _recipe(folder, family, settings, named, tokenizer)
    rows = len(named.get("encoder.embeddings.pieces.weight", ()))
    if tokenizer.size > rows:
        raise UserError(
            f"{folder}: the tokenizer has {tokenizer.size} pieces, the model {rows}: they do not "
            f"belong together"
        )
    return filled(recipe, rows, named, str(folder)), tokenizer


def read_config(folder: Path) -> Config:
    """config.json; UserError where there is none or it is not JSON."""
    file = folder / CONFIG
    if not file.is_file():
        raise UserError(f"{folder} is no Hugging Face folder: it has no {CONFIG}")
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is not JSON ({error}): copy it again") from error
    return config if isinstance(config, dict) else {}


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
    tensors = {_of_today(name): tensor for name, tensor in tensors.items()}
    bias = tensors.pop(f"{family.decoder}.bias", None)
    if bias is not None:
        tensors[family.output_bias] = bias
    decoder = tensors.get(f"{family.decoder}.weight")
    tied = config.get("tie_word_embeddings", True)
    if decoder is not None and tied:
        table = tensors.get(f"{family.prefix}.{family.pieces}")
        tied = table is not None and torch.equal(decoder, table)
        if tied:
            del tensors[f"{family.decoder}.weight"]
    return tensors, {**config, "tie_word_embeddings": tied}


def _of_today(name: str) -> str:
    for old, new in TENSORFLOW_NAMES.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _by_our_names(family: Family, tensors: Tensors) -> Tensors:
    headed = any(name.startswith(f"{family.prefix}.") for name in tensors)
    named = to_ours(family.table(headed, pairs=False), tensors)
    if any(name.startswith("heads.next-sentence.") for name in named):
        named = to_ours(family.table(headed, pairs=True), tensors)
    return named


def _family(folder: Path, config: Config) -> Family:
    kind = config.get("model_type")
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UserError(f"{folder / CONFIG}: the model_type is {kind!r}: readable are {known}")
    return FAMILIES[kind]


def _recipe(
    folder: Path, family: Family, settings: dict[str, Any], named: Tensors, tokenizer: Tokenizer
) -> Recipe:
    """The recipe of what a folder holds: its axes spelled out, its training that of our recipe."""
    training = read(family.recipe)
    objectives = {
        name: training["objectives"].get(name, {})
        for name, part in (("masked", "output."), ("next-sentence", "heads.next-sentence."))
        if any(tensor.startswith(part) for tensor in named)
    }
    pairs = "next-sentence" in objectives
    stated = {
        **training,
        "name": f"{family.model_type}-imported",
        "source": f"imported from {folder.resolve().name}",
        "text": {
            "tokenizer": {
                "kind": tokenizer.kind,
                "size": tokenizer.size,
                "lowercase": lowercases(tokenizer),
            }
        },
        **settings,
        "assembly": {"kind": "segment-pair" if pairs else "full-sentences", **settings["assembly"]},
        "objectives": objectives,
        "pooler": "pooler.weight" in named,
        "phases": [{}],
    }
    try:
        return Recipe.model_validate(stated)
    except ValidationError as error:
        raise explain(error, str(folder / CONFIG)) from error
