"""The contract of a family of Hugging Face models."""

import shutil
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from bertwright.core.config import did_you_mean
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models.model import Model
from bertwright.testing.laws import failing_with, require
from bertwright.testing.toy import randomise, tokenizer_of, toy_recipe

TEXTS = ("the keeper lights the lamp at night", "is it raining? no: it stopped an hour ago")


def check_family(
    model_type: str,
    *overrides: str,
    recipe: str | Path | None = None,
    tokenizer: Tokenizer | None = None,
    scale: float = 0.2,
) -> None:
    """Check the requirements of a registered family with a random model of toy size.

    The Transformers class loads an exported model without missing or unexpected tensors, and
    computes the same outputs with and without padding. Import of the exported folder gives the same
    recipe axes and parameters. A Transformers model with other parameters is imported, and exported
    with the same parameters. This needs Transformers.

    ``recipe`` is by default the recipe of the family, changed by ``overrides``; ``scale`` is the
    magnitude of the random parameters. Errors: AssertionError with one sentence.
    """
    family = FAMILIES.find(model_type)
    if family is None:
        known = ", ".join(FAMILIES)
        near = did_you_mean(model_type, FAMILIES)
        raise AssertionError(f"no family {model_type!r}{near} (registered are {known})")
    with failing_with(f"family {model_type}"), TemporaryDirectory() as temporary:
        folder = Path(temporary)
        toy = toy_recipe(recipe or family.recipe_name, *overrides)
        tokenizer = tokenizer or tokenizer_of(TEXTS, toy.text.tokenizer.kind_name())
        model = Model.build(toy, tokenizer.vocab_size)
        _randomise(model, tokenizer, scale)
        export = export_huggingface(
            model, tokenizer, folder / "export", verify=True, model_type=model_type
        )
        imported, imported_tokenizer = import_huggingface(folder / "export")
        _require_same_import(model_type, model, imported)
        require(
            imported_tokenizer.special_tokens == tokenizer.special_tokens,
            "the special tokens change on export and import",
        )
        _check_stock_round_trip(model_type, export.architecture, folder, scale)


def _require_same_import(model_type: str, model: Model, imported: Model) -> None:
    """Check that export and import keep the parameters of a model; heads may be dropped."""
    parameters = dict(model.named_parameters())
    for path, tensor in imported.named_parameters():
        require(path in parameters, f"an imported model has {path}, which the exported one lacks")
        require(torch.equal(tensor, parameters[path]), f"{path} changes on export and import")
    lost = {
        path
        for path in parameters.keys() - dict(imported.named_parameters()).keys()
        if not path.startswith("heads.")
    }
    if lost:
        raise AssertionError(f"{min(lost)} is lost on export and import")


def _check_stock_round_trip(model_type: str, architecture: str, folder: Path, scale: float) -> None:
    """Check that a Transformers model with other parameters is exported as it was imported."""
    transformers: Any = import_module("transformers")  # installed, as the export was verified
    stock_class = getattr(transformers, architecture)
    stock = stock_class.from_pretrained(folder / "export")
    _randomise_stock(stock, scale)
    shutil.copytree(folder / "export", folder / "stock")
    stock.save_pretrained(folder / "stock")
    model, tokenizer = import_huggingface(folder / "stock")
    export = export_huggingface(
        model, tokenizer, folder / "again", verify=True, model_type=model_type
    )
    require(
        export.architecture == architecture, f"{architecture} is exported as {export.architecture}"
    )
    expected: dict[str, Tensor] = stock.state_dict()
    actual: dict[str, Tensor] = stock_class.from_pretrained(folder / "again").state_dict()
    require(
        actual.keys() == expected.keys(),
        f"the tensors of {architecture} change on import and export",
    )
    for path, tensor in expected.items():
        require(
            torch.equal(actual[path], tensor),
            f"{path} of {architecture} changes on import and export",
        )


@torch.no_grad()
def _randomise(model: Model, tokenizer: Tokenizer, scale: float) -> None:
    randomise(model, scale)
    # Transformers initialises the embedding of padding to zero, and some classes read it.
    model.embedding_table[tokenizer.special_tokens.pad] = 0.0


@torch.no_grad()
def _randomise_stock(stock: Any, scale: float) -> None:
    randomise(stock, 0.9 * scale)
    table: nn.Embedding = stock.get_input_embeddings()
    if stock.config.pad_token_id is not None:
        table.weight[stock.config.pad_token_id] = 0.0
    stock.tie_weights()
