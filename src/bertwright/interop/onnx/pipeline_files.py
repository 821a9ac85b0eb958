"""The files by which transformers.js, and libraries with its layout, open a graph.

transformers.js reads ``config.json`` to choose a class and to name labels, ``tokenizer.json`` and
``tokenizer_config.json`` to write texts as token ids, and ``onnx/model.onnx``. Its classes only run
the graph, so that the class of BERT is right for every recipe.
"""

import json
from pathlib import Path
from typing import Any

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.head_types import (
    BASE,
    MASKED_LM,
    PROBLEM_TYPES,
    SEQUENCE_CLASSIFICATION,
    task_head_type,
)
from bertwright.interop.huggingface.model_card import PIPELINE_TAGS
from bertwright.interop.huggingface.tokenizer.settings import NO_MAX_LENGTH, SPECIAL_TOKENS_FILE
from bertwright.interop.huggingface.tokenizer.writer import (
    set_special_token_positions,
    write_tokenizer,
)
from bertwright.interop.sentence_transformers.dense import write_module_files
from bertwright.models.text_model import TextModel
from bertwright.tasks.example_encoder import num_pair_separators
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import SimilarityOutput

MODEL_TYPE, CLASS_NAME = "bert", "Bert"
"""The class that runs a graph in transformers.js; it has one for every head type."""

SPECIAL_TOKEN_ROLES = {
    "unk_token": "unknown",
    "pad_token": "pad",
    "cls_token": "start",
    "sep_token": "end",
    "mask_token": "mask",
}


def write_pipeline_files(folder: Path, model: TextModel) -> None:
    """Write the configuration and the tokenizer of a model, and the pooling if it embeds texts."""
    tokenizer, recipe = model.tokenizer, model.model.recipe
    config = pipeline_config(model)
    _write_json(folder / CONFIG_FILE, config)
    max_length = _max_length(model)
    separators = num_pair_separators(recipe, tokenizer)
    write_tokenizer(
        folder,
        tokenizer,
        recipe.assembly,
        recipe.encoder.distinguishes_segments,
        max_length or NO_MAX_LENGTH,
        separators,
    )
    set_special_token_positions(folder, tokenizer, recipe.assembly)
    Tokenizer.load(folder).save(folder)  # with its kind and roles
    special_tokens = tokenizer.special_tokens
    _write_json(
        folder / SPECIAL_TOKENS_FILE,
        {
            key: tokenizer.id_to_token(getattr(special_tokens, role))
            for key, role in SPECIAL_TOKEN_ROLES.items()
        },
    )
    if head_type(model) in (BASE, MASKED_LM):
        write_module_files(folder, model)


def pipeline_config(model: TextModel) -> dict[str, Any]:
    """Return the content of config.json: the class, the sizes and the labels."""
    recipe = model.model.recipe
    encoder = recipe.encoder
    config: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "architectures": [f"{CLASS_NAME}{head_type(model)}"],
        "recipe": recipe.name,
        "hidden_size": encoder.width,
        "vocab_size": model.model.vocab_size,
        "pad_token_id": model.tokenizer.special_tokens.pad,
    }
    if (max_length := _max_length(model)) is not None:
        config["max_position_embeddings"] = max_length
    if not isinstance(model, FineTunedModel) or head_type(model) == BASE:
        return config
    task, num_outputs = model.task, model.task_model.head_spec.num_outputs
    labels = task.labels or tuple(f"LABEL_{index}" for index in range(num_outputs))
    config["id2label"] = {str(index): label for index, label in enumerate(labels)}
    config["label2id"] = {label: index for index, label in enumerate(labels)}
    if (kind := task.output_type.kind_name()) in PROBLEM_TYPES:
        config["problem_type"] = PROBLEM_TYPES[kind]
    elif task.output_type.activation == "sigmoid":
        config["problem_type"] = PROBLEM_TYPES["labels"]
    return config


def head_type(model: TextModel) -> str:
    """Return the suffix of the class that runs a graph."""
    if not isinstance(model, FineTunedModel):
        return MASKED_LM if model.is_masked_lm else BASE
    if isinstance(model.task.output_type, SimilarityOutput):
        return BASE
    return task_head_type(model.task_model)


def pipeline_tag(model: TextModel) -> str:
    """Return the name of the pipeline for a graph."""
    kinds = PIPELINE_TAGS | {BASE: "feature-extraction", MASKED_LM: "fill-mask"}
    return kinds.get(head_type(model), PIPELINE_TAGS[SEQUENCE_CLASSIFICATION])


def _max_length(model: TextModel) -> int | None:
    return (
        model.example_encoder.max_length if isinstance(model, FineTunedModel) else model.max_length
    )


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
