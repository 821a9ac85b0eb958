"""Export an encoder to a sentence-transformers folder: a stock model and its pooling."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import tokenizers as library
import torch
from tokenizers.processors import TemplateProcessing

from bertwright.batches.formats import InputFormat
from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.files import atomic_folder
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.exporter import HuggingFaceExport, export_huggingface
from bertwright.interop.huggingface.families.registry import find_family
from bertwright.interop.huggingface.sentence_transformers_config import (
    EXPORTED_KEYS,
    MODEL_CONFIG_FILE,
    MODULES_FILE,
    TRANSFORMER_CONFIG_FILES,
)
from bertwright.interop.huggingface.tokenizer.settings import NO_MAX_LENGTH
from bertwright.interop.parity import Parity
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel, embedding_config
from bertwright.tasks.outputs import SimilarityOutput

SAMPLE_TEXTS = (
    "A text.",
    "Another one, which is longer than the first and ends later.",
    "It costs 12.50, she wrote; \u201cnot one\u201d reader believed it!",
    "A text of many words. " * 200,
)
"""Texts of several lengths, one beyond the maximum length of most encoders."""

_MODULE_PACKAGE = "sentence_transformers.models"


def export_sentence_transformers(
    model: TextModel, folder: Path, verify: bool = False, model_type: str | None = None
) -> HuggingFaceExport:
    """Write a sentence-transformers folder whose ``encode`` gives the same result as ``embed``.

    Pooling, scaling, truncation and the default prompt follow the recipe; an encoder fine-tuned for
    similarity pools and truncates as in training. Pre-training heads are omitted. ``verify``
    compares the embeddings of the written model; a folder whose embeddings differ is not kept.

    Raises UserError if no stock class can compute the recipe from texts alone, or no module its
    pooling; MissingExtra if ``verify`` needs sentence-transformers.
    """
    unquantized = remove_fake_quantizers(model)
    family = find_family(unquantized.model, unquantized.tokenizer.special_tokens, model_type)
    encoder_model = _encoder_only(unquantized)
    if mismatch := family.standalone_mismatch(encoder_model.model.recipe, encoder_model.max_length):
        raise UserError(f"sentence-transformers cannot compute these vectors: {mismatch}")
    if family.is_padding_sensitive:
        encoder_model = _with_zero_padding_vector(encoder_model)
    with atomic_folder(folder) as temporary:
        stock_folder = temporary / "stock"
        report = export_huggingface(
            encoder_model.model, encoder_model.tokenizer, stock_folder, model_type=family.model_type
        )
        for file in stock_folder.iterdir():
            shutil.move(file, temporary / file.name)
        stock_folder.rmdir()
        _write_module_files(temporary, encoder_model)
        difference = _max_difference(temporary, encoder_model) if verify else None
    return HuggingFaceExport(report.architecture, difference, report.dropped_objectives)


def _encoder_only(model: TextModel) -> TextModel:
    """Return the encoder with its pooler; UserError for a task that does not embed texts."""
    if isinstance(model, FineTunedModel):
        _require_sentence_embeddings(model)
        return TextModel(model.model, model.tokenizer, "float32")
    network = model.model
    if network.decoder is not None:
        return TextModel(network, model.tokenizer, "float32")
    with torch.device("meta"):
        recipe = network.recipe.model_copy(update={"objectives": {}})
        encoder_model = Model(recipe, network.vocab_size)
    encoder_model.encoder, encoder_model.pooler = network.encoder, network.pooler
    return TextModel(encoder_model, model.tokenizer, "float32")


@torch.no_grad()
def _with_zero_padding_vector(model: TextModel) -> TextModel:
    """Return a copy with a zero padding embedding, for stock classes that read padding."""
    network = copy.deepcopy(model.model)
    network.embedding_table[model.tokenizer.special_tokens.pad] = 0
    return TextModel(network, model.tokenizer, "float32")


def _require_sentence_embeddings(model: FineTunedModel) -> None:
    if not isinstance(model.task.output_type, SimilarityOutput):
        raise UserError(
            f"a model for {model.task.name} does not embed texts: export it to huggingface, or "
            f"fine-tune with --task similarity or retrieval"
        )
    head_config = model.task_model.head_config
    if (
        embedding_config(model.task.output_type, head_config, model.example_encoder.max_length)
        is None
    ):
        raise UserError(
            f"head.pooling is {head_config.pooling} of layers {head_config.layers}: "
            f"sentence-transformers pools the last layer by mean or first"
        )


def _write_module_files(folder: Path, model: TextModel) -> None:
    recipe = model.model.recipe
    width, vectors = recipe.encoder.width, recipe.vectors
    pooling, ends_with_start_token = vectors.pooling, recipe.assembly.ends_with_start_token
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    if vectors.normalise:
        paths["Normalize"] = "2_Normalize"
        (folder / "2_Normalize").mkdir()
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_MODULE_PACKAGE}.{kind}"}
        for index, (kind, path) in enumerate(paths.items())
    ]
    pooling_config = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls" and not ends_with_start_token,
        "pooling_mode_mean_tokens": pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    if pooling == "cls" and ends_with_start_token:
        pooling_config["pooling_mode_lasttoken"] = True
    max_length = model.max_length or NO_MAX_LENGTH
    _write_json(folder / MODULES_FILE, modules)
    _write_json(folder / "1_Pooling" / CONFIG_FILE, pooling_config)
    model_config = {
        key: value for key in EXPORTED_KEYS if (value := getattr(vectors, key)) is not None
    }
    _write_json(folder / MODEL_CONFIG_FILE, model_config)
    _write_json(
        folder / TRANSFORMER_CONFIG_FILES[0], {"max_seq_length": max_length, "do_lower_case": False}
    )
    _set_post_processor(folder / TOKENIZER_FILE, model.tokenizer, recipe.assembly)


def _set_post_processor(file: Path, tokenizer: Tokenizer, input_format: InputFormat) -> None:
    """Make the tokenizer write texts with special tokens as ``embed`` does.

    Stock causal models are exported with other special tokens.
    """
    backend, ids = library.Tokenizer.from_file(str(file)), tokenizer.special_tokens
    special_ids = input_format.add_special_tokens([], ids)
    if backend.encode("").ids == special_ids:
        return
    start, end = tokenizer.id_to_token(ids.start), tokenizer.id_to_token(ids.end)
    single = f"$A {end} {start}" if special_ids[0] == ids.end else f"{start} $A {end}"
    backend.post_processor = TemplateProcessing(
        single=single, special_tokens=[(start, ids.start), (end, ids.end)]
    )
    backend.save(str(file))


def _write_json(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _max_difference(folder: Path, model: TextModel) -> float:
    """Return the largest difference from sentence-transformers; UserError if not just rounding."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "sentence-transformers") from error
    stock: Any = SentenceTransformer(str(folder), device="cpu")
    stock_vectors = stock.encode(list(SAMPLE_TEXTS), convert_to_numpy=True)
    vectors = model.model.recipe.vectors
    prompted_texts = [f"{vectors.default_prompt}{text}" for text in SAMPLE_TEXTS]
    model_vectors = model.embed(prompted_texts, normalise=vectors.normalise)[
        :, : vectors.truncate_dim
    ]
    if stock_vectors.shape != model_vectors.shape:
        raise UserError(
            f"sentence-transformers returns vectors of {stock_vectors.shape[1]} dimensions, not "
            f"{model_vectors.shape[1]}: update it, or load the model without truncate_dim"
        )
    parity = Parity()
    parity.update(model_vectors, stock_vectors)
    parity.require_rounding("sentence-transformers")
    return parity.max_difference
