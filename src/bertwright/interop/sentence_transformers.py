"""From an encoder of ours to a folder that sentence-transformers loads: the stock class, and beside
it which states become the vector of a text."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
import torch
from tokenizers.processors import TemplateProcessing

from bertwright.compression.quantisation import unrounded
from bertwright.errors import MissingExtra, UserError
from bertwright.files import atomic_folder
from bertwright.interop.huggingface import export_folder
from bertwright.interop.huggingface.families import family_of
from bertwright.interop.huggingface.sentence_vectors import ABOUT, KEPT, MODULES, SETTINGS
from bertwright.interop.huggingface.tokenizer_settings import NO_LIMIT
from bertwright.interop.huggingface.writing import Export
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import FineTuned, vectors_of
from bertwright.text.tokenizers import FILE, Tokenizer

TEXTS = (
    "A text.",
    "Another one, which is longer than the first and goes on for a while.",
    "It costs 12.50, they said; \u201cnobody\u201d believed it!",
    "A text goes on. " * 200,
)
"""Of several lengths, one of them longer than most encoders read."""

TOLERANCE = 1e-4
"""Of a number of a vector, at most."""

_STOCK = "sentence_transformers.models"


def export_sentence_transformers(
    model: TextModel, folder: Path, verify: bool = False, family_name: str | None = None
) -> Export:
    """Write a folder for sentence-transformers; its vectors are those of ``embed``, of texts behind
    the default prompt, scaled and truncated as the recipe says of vectors.

    An encoder that was fine-tuned for closeness is pooled, and reads as much of a text, as it was
    trained, any other as ``embed`` does it. Heads of pre-training are left out. ``verify`` loads
    what was written and compares what its ``encode`` returns; a folder that differs is not kept.

    Errors: UserError where no stock class computes the recipe from texts alone, or the pooling;
    MissingExtra where ``verify`` finds no sentence-transformers.
    """
    whole = unrounded(model)
    family = family_of(whole.model, whole.tokenizer.specials, family_name)
    bare = _bare(whole)
    if lacks := family.lacks_alone(bare.model.recipe, bare.longest):
        raise UserError(f"sentence-transformers cannot make these vectors, for {lacks}")
    if family.reads_padding:
        bare = _unpadded(bare)
    with atomic_folder(folder) as temporary:
        within = temporary / "stock"
        written = export_folder(bare.model, bare.tokenizer, within, family_name=family.model_type)
        for file in within.iterdir():
            shutil.move(file, temporary / file.name)
        within.rmdir()
        _write(temporary, bare)
        difference = _difference(temporary, bare) if verify else None
    return Export(written.architecture, difference, written.left_behind)


def _bare(model: TextModel) -> TextModel:
    """Return the encoder alone, with its pooler where it has one, if it gives vectors."""
    if isinstance(model, FineTuned):
        _require_vectors(model)
        return TextModel(model.model, model.tokenizer, "float32")
    net = model.model
    if net.decoder is not None:
        return TextModel(net, model.tokenizer, "float32")
    with torch.device("meta"):
        recipe = net.recipe.model_copy(update={"objectives": {}})
        alone = Model(recipe, net.vocabulary_size)
    alone.encoder, alone.pooler = net.encoder, net.pooler
    return TextModel(alone, model.tokenizer, "float32")


@torch.no_grad()
def _unpadded(model: TextModel) -> TextModel:
    """The same where nothing stands behind a text, for a stock class that reads padding there."""
    net = copy.deepcopy(model.model)
    net.embedding[model.tokenizer.specials.pad] = 0
    return TextModel(net, model.tokenizer, "float32")


def _require_vectors(model: FineTuned) -> None:
    if model.task.answer.name != "closeness":
        raise UserError(
            f"a model for {model.task.name} gives no vectors: export it to huggingface, or "
            f"fine-tune with --task similarity or retrieval"
        )
    choice = model.net.choice
    if vectors_of(model.task.answer, choice, model.maker.length) is None:
        raise UserError(
            f"head.read is {choice.read} of layers {choice.layers}: sentence-transformers pools "
            f"the last layer by mean or first"
        )


def _write(folder: Path, model: TextModel) -> None:
    recipe = model.model.recipe
    width, vectors = recipe.encoder.width, recipe.vectors
    pooling = vectors.pooling
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    if vectors.normalise:
        paths["Normalize"] = "2_Normalize"
        (folder / "2_Normalize").mkdir()
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_STOCK}.{kind}"}
        for number, (kind, path) in enumerate(paths.items())
    ]
    pooled = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    longest = model.longest or NO_LIMIT
    _write_json(folder / MODULES, modules)
    _write_json(folder / "1_Pooling" / "config.json", pooled)
    about = {key: value for key in KEPT if (value := getattr(vectors, key)) is not None}
    _write_json(folder / ABOUT, about)
    _write_json(folder / SETTINGS[0], {"max_seq_length": longest, "do_lower_case": False})
    _frame(folder / FILE, model.tokenizer)


def _frame(file: Path, tokenizer: Tokenizer) -> None:
    """Let a text stand between what starts and what ends one, as ``embed`` reads it, also where the
    stock class that names what comes next reads it otherwise."""
    backend, ids = library.Tokenizer.from_file(str(file)), tokenizer.specials
    if backend.encode("").ids == [ids.start, ids.end]:
        return
    start, end = tokenizer.piece(ids.start), tokenizer.piece(ids.end)
    backend.post_processor = TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, ids.start), (end, ids.end)]
    )
    backend.save(str(file))


def _write_json(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _difference(folder: Path, model: TextModel) -> float:
    """Return the greatest difference of a number of a vector that ``encode`` returns; UserError
    where it is no rounding."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "sentence-transformers") from error
    stock: Any = SentenceTransformer(str(folder), device="cpu")
    theirs = stock.encode(list(TEXTS), convert_to_numpy=True)
    vectors = model.model.recipe.vectors
    behind = [f"{vectors.default_prompt}{text}" for text in TEXTS]
    ours = model.embed(behind, normalise=vectors.normalise)[:, : vectors.truncate_dim]
    if theirs.shape != ours.shape:
        raise UserError(
            f"sentence-transformers makes vectors of {theirs.shape[1]} numbers, not of "
            f"{ours.shape[1]}: update it, or load the model without truncate_dim"
        )
    difference = float(np.abs(theirs - ours).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise UserError(
            f"sentence-transformers differs from the model by {difference:.2g}: this is a mistake "
            f"of bertwright's, please report the recipe"
        )
    return difference
