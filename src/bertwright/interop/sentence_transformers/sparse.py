"""Export a model that weights tokens: a stock masked language model and the pooling of its logits.

With static queries, a router sends queries to a table of weights and documents to the model.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder
from bertwright.interop.huggingface import CONFIG_FILE, ROUTER_FILE
from bertwright.interop.huggingface.exporter import HuggingFaceExport
from bertwright.interop.huggingface.families.registry import find_family
from bertwright.interop.huggingface.head_types import MASKED_LM
from bertwright.interop.huggingface.tokenizer.writer import (
    set_special_token_positions,
    write_tokenizer,
)
from bertwright.interop.huggingface.weights import WEIGHTS_FILE
from bertwright.interop.parity import Parity
from bertwright.interop.sentence_transformers.folder import (
    SAMPLE_TEXTS,
    TRANSFORMER,
    require_sentence_transformers,
    write_json,
    write_model_config,
    write_modules,
    write_stock_model,
    write_transformer_config,
)
from bertwright.models.model import Model
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.heads.text_vectors import StaticTokenWeights

POOLING = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
STATIC = (
    "sentence_transformers.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"
)
ROUTER = "sentence_transformers.base.modules.router.Router"

TRANSFORMER_FOLDER, POOLING_FOLDER, STATIC_FOLDER = (
    "document_0_Transformer",
    "document_1_SpladePooling",
    "query_0_SparseStaticEmbedding",
)
"""Folders of the modules of a router."""

NO_WEIGHT = -1e4
"""Bias of rows of the output table that have no token."""

MODEL_CONFIG = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}


def export_sparse_encoder(
    model: FineTunedModel, folder: Path, verify: bool = False, model_type: str | None = None
) -> HuggingFaceExport:
    """Write a ``SparseEncoder`` that gives queries and documents the same weights as the model."""
    unquantized = remove_fake_quantizers(model)
    assert isinstance(unquantized, FineTunedModel)
    network = _masked_lm(unquantized)
    family = find_family(network, model.tokenizer.special_tokens, model_type)
    max_length = model.example_encoder.max_length
    mismatch = family.standalone_mismatch(network.recipe, max_length)
    if family.lm_head_type != MASKED_LM:
        mismatch = f"{family.class_name} has no class {MASKED_LM}"
    elif family.is_padding_sensitive:
        mismatch = f"{family.class_name} reads the padding of a batch"
    if mismatch:
        raise UserError(f"sentence-transformers cannot compute these weights: {mismatch}")
    static_weights = model.task_model.head.classifier
    is_static = isinstance(static_weights, StaticTokenWeights)
    with atomic_folder(folder) as temporary:
        transformer = temporary / TRANSFORMER_FOLDER if is_static else temporary
        transformer.mkdir(exist_ok=True)
        report = write_stock_model(transformer, network, model.tokenizer, family.model_type)
        write_transformer_config(
            transformer,
            max_length,
            transformer_task="fill-mask",
            modality_config={"text": {"method": "forward", "method_output_name": "logits"}},
            module_output_name="token_embeddings",
        )
        pooling = temporary / (POOLING_FOLDER if is_static else "1_SpladePooling")
        double_log = getattr(model.task_model.head_config, "double_log", False)
        pooling_config = {
            "pooling_strategy": "max",
            "activation_function": "log1p_relu" if double_log else "relu",
            "embedding_dimension": network.vocab_size,
        }
        write_json(pooling / CONFIG_FILE, pooling_config)
        write_model_config(temporary, MODEL_CONFIG)
        if isinstance(static_weights, StaticTokenWeights):
            _write_static_weights(temporary / STATIC_FOLDER, model, static_weights)
            _write_router(temporary)
        else:
            write_modules(temporary, [("", TRANSFORMER), (pooling.name, POOLING)])
        difference = _max_difference(temporary, model) if verify else None
    return HuggingFaceExport(report.architecture, difference, report.dropped_objectives)


@torch.no_grad()
def _masked_lm(model: FineTunedModel) -> Model:
    """Return the encoder with the head that predicts masked tokens, and no other objective."""
    source = model.model
    objectives = {
        name: objective
        for name, objective in source.recipe.objectives.items()
        if objective.capabilities.predicts_tokens and not objective.capabilities.uses_decoder
    }
    with torch.device("meta"):
        recipe = source.recipe.model_copy(update={"objectives": objectives, "pooler": False})
        network = Model(recipe, source.vocab_size)
    network.encoder, network.output = source.encoder, copy.deepcopy(source.output)
    network.heads.clear()
    lm_head = network.output
    assert lm_head is not None, "weights of tokens come from an LM head"
    lm_head.tie_weights(network.encoder.embeddings)
    if lm_head.unused_token_mask is not None and lm_head.bias is not None:
        lm_head.bias[lm_head.unused_token_mask.to(lm_head.bias.device)] = NO_WEIGHT
    return network


def _write_static_weights(
    folder: Path, model: FineTunedModel, static_weights: StaticTokenWeights
) -> None:
    """Write the module of queries: its tokenizer and a weight for each token."""
    tokenizer = model.tokenizer
    weights = static_weights.weights.detach().cpu().contiguous()
    if len(weights) != len(tokenizer.ids):
        raise UserError(
            f"the model has {len(weights):,} embeddings and {len(tokenizer.ids):,} tokens, and "
            f"sentence-transformers needs as many for static queries: run vocab prune first"
        )
    folder.mkdir()
    # Its queries have no special tokens.
    assembly, max_length = model.model.recipe.assembly, model.example_encoder.max_length
    write_tokenizer(folder, tokenizer, assembly, False, max_length - 2)
    set_special_token_positions(folder, tokenizer, assembly)
    save_file({"weight": weights}, str(folder / WEIGHTS_FILE))
    write_json(folder / CONFIG_FILE, {"frozen": False})


def _write_router(folder: Path) -> None:
    """Write the module that sends queries to the table of weights and documents to the model."""
    write_modules(folder, [("", ROUTER)])
    types = {STATIC_FOLDER: STATIC, TRANSFORMER_FOLDER: TRANSFORMER, POOLING_FOLDER: POOLING}
    structure = {"query": [STATIC_FOLDER], "document": [TRANSFORMER_FOLDER, POOLING_FOLDER]}
    parameters = {"default_route": "document", "allow_empty_key": True, "route_mappings": {}}
    content = {"types": types, "structure": structure, "parameters": parameters}
    write_json(folder / ROUTER_FILE, content)


def _max_difference(folder: Path, model: FineTunedModel) -> float:
    """Return the largest difference from sentence-transformers; UserError if not just rounding."""
    stock = require_sentence_transformers().SparseEncoder(str(folder), device="cpu")
    encoder, parity = model.retrieval_encoder(), Parity()
    texts: Sequence[str] = list(SAMPLE_TEXTS)
    pairs: list[tuple[Any, Any]] = [
        (encoder.encode_queries(texts), stock.encode_query(texts)),
        (encoder.encode_documents(texts), stock.encode_document(texts)),
    ]
    for ours, theirs in pairs:
        dense = np.asarray(ours.toarray(), np.float32)
        parity.update(dense, theirs.to_dense().numpy()[:, : dense.shape[1]])
    parity.require_rounding("sentence-transformers")
    return parity.max_difference
