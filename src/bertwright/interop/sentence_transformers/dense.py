"""Export an encoder of dense vectors: a stock model and its pooling."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.exporter import HuggingFaceExport, with_zero_padding_vector
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.families.registry import find_family
from bertwright.interop.huggingface.sentence_transformers_config import (
    DENSE_ACTIVATIONS,
    EXPORTED_KEYS,
    LEGACY_POOLING_KEYS,
    START_TOKEN_POOLINGS,
)
from bertwright.interop.huggingface.tokenizer.settings import NO_MAX_LENGTH
from bertwright.interop.huggingface.weights import WEIGHTS_FILE
from bertwright.interop.parity import Parity
from bertwright.interop.sentence_transformers.folder import (
    SAMPLE_TEXTS,
    require_sentence_transformers,
    write_json,
    write_model_config,
    write_modules,
    write_stock_model,
    write_transformer_config,
)
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.vector_projection import VectorProjection
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.tasks.text_encoder import embedding_config

_MODULE_PACKAGE = "sentence_transformers.models"


def export_dense_encoder(
    model: TextModel, folder: Path, verify: bool = False, model_type: str | None = None
) -> HuggingFaceExport:
    """Write a ``SentenceTransformer`` whose ``encode`` gives the same result as ``embed``.

    Pooling, scaling, truncation and the default prompt follow the recipe; an encoder fine-tuned for
    similarity pools and truncates as in training. Pre-training heads are omitted.
    """
    unquantized = remove_fake_quantizers(model)
    if isinstance(unquantized, FineTunedModel):
        _require_sentence_embeddings(unquantized)
    encoder_model, family = standalone_encoder(unquantized, model_type)
    with atomic_folder(folder) as temporary:
        report = write_stock_model(
            temporary, encoder_model.model, encoder_model.tokenizer, family.model_type
        )
        write_module_files(temporary, encoder_model)
        difference = _max_difference(temporary, encoder_model) if verify else None
    return HuggingFaceExport(report.architecture, difference, report.dropped_objectives)


def standalone_encoder(model: TextModel, model_type: str | None) -> tuple[TextModel, ModelFamily]:
    """Return the encoder that stock classes load, and its family.

    Raises UserError if no stock class computes its hidden states from texts alone.
    """
    encoder_model = _encoder_only(model)
    family = find_family(encoder_model.model, model.tokenizer.special_tokens, model_type)
    if mismatch := family.standalone_mismatch(encoder_model.model.recipe, encoder_model.max_length):
        raise UserError(f"sentence-transformers cannot compute these vectors: {mismatch}")
    if family.is_padding_sensitive:
        network = with_zero_padding_vector(encoder_model.model, model.tokenizer)
        encoder_model = TextModel(network, model.tokenizer, "float32")
    return encoder_model, family


def _encoder_only(model: TextModel) -> TextModel:
    """Return the encoder with its pooler; a decoder that reads vectors only trained it."""
    if isinstance(model, FineTunedModel):
        return TextModel(model.model, model.tokenizer, "float32")
    network, decoder = model.model, model.model.recipe.decoder
    if decoder is not None and decoder.vector_pooling is None:
        return TextModel(network, model.tokenizer, "float32")
    with torch.device("meta"):
        recipe = network.recipe.model_copy(update={"objectives": {}, "decoder": None})
        encoder_model = Model(recipe, network.vocab_size)
    encoder_model.encoder, encoder_model.pooler = network.encoder, network.pooler
    encoder_model.vector_projection = network.vector_projection
    return TextModel(encoder_model, model.tokenizer, "float32")


def _require_sentence_embeddings(model: FineTunedModel) -> None:
    if not isinstance(model.task.output_type, SimilarityOutput):
        raise UserError(
            f"a model for {model.task.name} does not embed texts: export it to huggingface, or "
            f"fine-tune with --task similarity or retrieval"
        )
    head_config = model.task_model.head_config
    ends_with_start_token = model.model.recipe.assembly.ends_with_start_token
    output_type = model.task.output_type
    if embedding_config(output_type, head_config, 1, ends_with_start_token) is None:
        raise UserError(
            f"head.pooling is {head_config.pooling} of layers {head_config.layers}: "
            f"sentence-transformers pools the last layer by mean or first"
        )


def write_module_files(folder: Path, model: TextModel) -> None:
    """Write the modules of sentence-transformers: pooling, scaling, prompts and maximum length."""
    recipe = model.model.recipe
    width, vectors = recipe.encoder.width, recipe.vectors
    start_token_pooling = START_TOKEN_POOLINGS[recipe.assembly.ends_with_start_token]
    pooling = start_token_pooling if vectors.pooling == "cls" else vectors.pooling
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    projection = model.model.vector_projection
    if projection is not None:
        paths["Dense"] = "2_Dense"
        _write_projection(folder / paths["Dense"], projection)
    if vectors.normalise:
        paths["Normalize"] = f"{len(paths)}_Normalize"
        (folder / paths["Normalize"]).mkdir()
    write_modules(folder, [(p, f"{_MODULE_PACKAGE}.{kind}") for kind, p in paths.items()])
    pooling_config = {
        "word_embedding_dimension": width,
        **{key: name == pooling for key, name in LEGACY_POOLING_KEYS.items()},
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    max_length = model.max_length or NO_MAX_LENGTH
    write_json(folder / "1_Pooling" / CONFIG_FILE, pooling_config)
    write_model_config(
        folder,
        {key: value for key in EXPORTED_KEYS if (value := getattr(vectors, key)) is not None},
    )
    write_transformer_config(folder, max_length)


def _write_projection(folder: Path, projection: VectorProjection) -> None:
    config = projection.config
    class_names = {activation: name for name, activation in DENSE_ACTIVATIONS.items()}
    dense_config = {
        "in_features": projection.linear.in_features,
        "out_features": config.width,
        "bias": config.bias,
        "activation_function": class_names[config.activation],
    }
    write_json(folder / CONFIG_FILE, dense_config)
    tensors = {n: t.float().cpu().contiguous() for n, t in projection.state_dict().items()}
    save_file(tensors, str(folder / WEIGHTS_FILE))


def _max_difference(folder: Path, model: TextModel) -> float:
    """Return the largest difference from sentence-transformers; UserError if not just rounding."""
    stock = require_sentence_transformers().SentenceTransformer(str(folder), device="cpu")
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
