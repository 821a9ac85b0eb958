"""Export a late-interaction model: a stock encoder, its projection, and the mask of its vectors."""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from safetensors.torch import save_file
from torch import nn

from bertwright.core.files import atomic_folder
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.exporter import HuggingFaceExport
from bertwright.interop.huggingface.tokenizer.stock_class import TOKENIZER_CONFIG_FILE
from bertwright.interop.huggingface.weights import WEIGHTS_FILE
from bertwright.interop.parity import Parity
from bertwright.interop.sentence_transformers.dense import standalone_encoder
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
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs.vectors.late_interaction import LateInteractionDecoder, TextPrefix

DENSE = "sentence_transformers.base.modules.dense.Dense"
MASK = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
NORMALIZE = "sentence_transformers.base.modules.normalize.Normalize"

TOKEN_FEATURES = {
    "module_input_name": "token_embeddings",
    "module_output_name": "token_embeddings",
}


def export_multi_vector_encoder(
    model: FineTunedModel, folder: Path, verify: bool = False, model_type: str | None = None
) -> HuggingFaceExport:
    """Write a ``MultiVectorEncoder`` that gives queries and documents the same vectors."""
    unquantized = remove_fake_quantizers(model)
    assert isinstance(unquantized, FineTunedModel)
    encoder_model, family = standalone_encoder(unquantized, model_type)
    with atomic_folder(folder) as temporary:
        report = write_stock_model(
            temporary, encoder_model.model, encoder_model.tokenizer, family.model_type
        )
        _write_module_files(temporary, unquantized)
        difference = _max_difference(temporary, model) if verify else None
    return HuggingFaceExport(report.architecture, difference, report.dropped_objectives)


def _write_module_files(folder: Path, model: FineTunedModel) -> None:
    decoder, projection = model.output_decoder, model.task_model.head.classifier
    assert isinstance(decoder, LateInteractionDecoder)
    assert isinstance(projection, nn.Linear)
    settings, max_length = decoder.config, model.example_encoder.max_length
    expansion = {
        "strategy": "fixed",
        "attend": True,
        "length": min(settings.query_length, max_length),
    }
    write_transformer_config(
        folder,
        max_length,
        transformer_task="feature-extraction",
        modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        module_output_name="token_embeddings",
        query_expansion=expansion,
    )
    dense_config = {
        "in_features": projection.in_features,
        "out_features": projection.out_features,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
        **TOKEN_FEATURES,
    }
    write_json(folder / "1_Dense" / CONFIG_FILE, dense_config)
    weight = projection.weight.detach().float().cpu().contiguous()
    save_file({"linear.weight": weight}, str(folder / "1_Dense" / WEIGHTS_FILE))
    tokenizer = model.tokenizer
    marks = [mark for mark in string.punctuation if tokenizer.token_to_id(mark) is not None]
    mask_config = {
        "skiplist_words": marks if settings.skip_punctuation else [],
        "skiplist_tasks": ["document"],
        "keep_only_token_ids": None,
    }
    write_json(folder / "2_MultiVectorMask" / CONFIG_FILE, mask_config)
    write_json(folder / "3_Normalize" / CONFIG_FILE, TOKEN_FEATURES)
    modules = [("1_Dense", DENSE), ("2_MultiVectorMask", MASK), ("3_Normalize", NORMALIZE)]
    write_modules(folder, [("", TRANSFORMER), *modules])
    query, document = decoder.query_prefix(tokenizer), decoder.document_prefix(tokenizer)
    prompts = {"query": query.token or query.text, "document": document.token or document.text}
    write_model_config(
        folder,
        {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim", "prompts": prompts},
    )
    _add_markers(folder, [prefix for prefix in (query, document) if prefix.token])


def _add_markers(folder: Path, prefixes: list[TextPrefix]) -> None:
    """Make the tokenizer read the marker tokens that begin a prompt as single tokens."""
    if not prefixes:
        return
    backend = library.Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    backend.add_special_tokens([library.AddedToken(p.token, normalized=False) for p in prefixes])
    backend.save(str(folder / TOKENIZER_FILE))
    file = folder / TOKENIZER_CONFIG_FILE
    config = json.loads(file.read_text(encoding="utf-8"))
    # The class of BERT ignores tokenizer.json, where the markers are.
    write_json(file, config | {"tokenizer_class": "PreTrainedTokenizerFast"})


def _max_difference(folder: Path, model: FineTunedModel) -> float:
    """Return the largest difference from sentence-transformers; UserError if not just rounding."""
    stock = require_sentence_transformers().MultiVectorEncoder(str(folder), device="cpu")
    encoder, parity = model.retrieval_encoder(), Parity()
    texts = list(SAMPLE_TEXTS)
    pairs: list[tuple[Any, Any]] = [
        (encoder.encode_queries(texts), stock.encode_query(texts)),
        (encoder.encode_documents(texts), stock.encode_document(texts)),
    ]
    for ours, theirs in pairs:
        stock_vectors = np.concatenate([vectors.numpy() for vectors in theirs])
        parity.update(np.concatenate(ours), stock_vectors)
    parity.require_rounding("sentence-transformers")
    return parity.max_difference
