"""From a model of ours to a folder that stock Transformers classes load."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from bertwright.files import atomic_folder
from bertwright.interop.huggingface.families import family_of
from bertwright.interop.huggingface.family import Family
from bertwright.interop.huggingface.reading import CONFIG, WEIGHTS
from bertwright.interop.huggingface.renaming import Tensors, to_theirs
from bertwright.interop.huggingface.tokenizer_files import write_tokenizer
from bertwright.interop.huggingface.verification import greatest_difference
from bertwright.model import Model
from bertwright.text.tokenizers import Tokenizer

CARD = "README.md"


@dataclass(frozen=True)
class Export:
    """What was written: the stock class, and, where it was asked for, the greatest absolute
    difference between its outputs and ours."""

    architecture: str
    max_difference: float | None


def export_folder(model: Model, tokenizer: Tokenizer, folder: Path, verify: bool = False) -> Export:
    """Write config.json, model.safetensors, the tokenizer's files and a model card.

    ``verify`` loads what was written with Transformers and compares; a folder that differs is not
    kept.

    Errors: UserError where no stock class computes the recipe, which names the axis; MissingExtra
    where ``verify`` finds no Transformers.
    """
    family = family_of(model, tokenizer.specials)
    config = family.config(model, tokenizer.specials)
    architecture: str = config["architectures"][0]
    with atomic_folder(folder) as temporary:
        (temporary / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        tensors = stock_tensors(family, model)
        save_file(tensors, str(temporary / WEIGHTS), metadata={"format": "pt"})
        segments = config.get("type_vocab_size", 1) > 1
        write_tokenizer(temporary, tokenizer, segments, _longest_row(model))
        (temporary / CARD).write_text(_card(model, tokenizer, architecture), encoding="utf-8")
        difference = greatest_difference(temporary, model, tokenizer) if verify else None
    return Export(architecture, difference)


@torch.no_grad()
def stock_tensors(family: Family, model: Model) -> Tensors:
    """The tensors of a model as its stock class saves them: float32, what is tied once."""
    headed = model.output is not None or bool(model.heads)
    table = family.table(headed, "next-sentence" in model.heads)
    tensors = to_theirs(table, family.completed(model))
    if f"{family.decoder}.weight" in tensors:
        tensors[f"{family.decoder}.bias"] = tensors[family.output_bias].clone()
    return {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}


def _longest_row(model: Model) -> int:
    recipe = model.recipe
    trained = max(recipe.assembly_of(number).length for number in range(len(recipe.phases)))
    return model.encoder.longest or trained


def _card(model: Model, tokenizer: Tokenizer, architecture: str) -> str:
    recipe = model.recipe
    number = sum(parameter.numel() for parameter in model.parameters())
    fills = model.output is not None
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {'fill-mask' if fills else 'feature-extraction'}",
        "---",
        "",
        f"# {recipe.name}",
        "",
        f"An encoder made with bertwright, for the stock class `{architecture}`. Source of the "
        f"recipe: {recipe.source or 'own'}.",
        "",
        f"- parameters: {number:,}",
        f"- vocabulary: {tokenizer.size:,} ({tokenizer.kind})",
        f"- longest row: {_longest_row(model):,} pieces",
        "",
        "```python",
        "from transformers import pipeline",
        "",
    ]
    if fills:
        mask = tokenizer.piece(tokenizer.specials.mask)
        lines += ['fill = pipeline("fill-mask", "this folder")', f'fill("This is a {mask}.")']
    else:
        lines += ['encode = pipeline("feature-extraction", "this folder")', 'encode("A sentence.")']
    return "\n".join([*lines, "```", ""])
