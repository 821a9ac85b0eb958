"""Import sparse and multi-vector encoders of sentence-transformers."""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface import CONFIG_FILE, ROUTER_FILE
from bertwright.interop.huggingface.importer import HuggingFaceFolder, read_huggingface_folder
from bertwright.interop.huggingface.sentence_transformers_config import (
    MODEL_CONFIG_FILE,
    MODULES_FILE,
    TRANSFORMER_CONFIG_FILES,
)
from bertwright.interop.huggingface.tokenizer.settings import read_json_file, read_model_max_length
from bertwright.interop.huggingface.weights import WEIGHTS_FILE
from bertwright.models.saving import load_tensors, read_tensors
from bertwright.recipes import SentenceVectorSettings
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.heads.default_head import default_head
from bertwright.tasks.heads.text_vectors import log_token_weights
from bertwright.tasks.outputs import LateInteractionOutput, SparseOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel


@dataclass(frozen=True)
class ModuleFolder:
    """A module of a sentence-transformers folder: its class and its folder."""

    kind: str
    folder: Path

    @property
    def config(self) -> Mapping[str, Any]:
        """Return the content of its config.json; empty if there is none."""
        return _read_json(self.folder / CONFIG_FILE)


def is_retrieval_folder(folder: Path) -> bool:
    """Return whether a folder holds a ``SparseEncoder`` or a ``MultiVectorEncoder``."""
    kind = _read_json(folder / MODEL_CONFIG_FILE).get("model_type")
    return kind in ("SparseEncoder", "MultiVectorEncoder")


def load_retrieval_folder(
    folder: Path, precision: InferencePrecision | None = None
) -> FineTunedModel:
    """Return the model of a folder, with the task ``retrieval``.

    Raises UserError for modules that no output type computes.
    """
    routes = _read_routes(folder)
    documents = {module.kind: module for module in routes["document"]}
    if [*documents] == ["Transformer", "SpladePooling"]:
        return _load_sparse_encoder(documents, routes.get("query", []), precision)
    if [*documents] == ["Transformer", "Dense", "MultiVectorMask", "Normalize"]:
        return _load_multi_vector_encoder(folder, documents, precision)
    raise _unsupported_error(folder, f"has the modules {', '.join(documents)}")


def _load_sparse_encoder(
    documents: Mapping[str, ModuleFolder],
    queries: list[ModuleFolder],
    precision: InferencePrecision | None,
) -> FineTunedModel:
    transformer, pooling = documents["Transformer"].folder, documents["SpladePooling"].config
    if pooling.get("pooling_strategy", "max") != "max":
        raise _unsupported_error(transformer, f"pools by {pooling['pooling_strategy']}")
    if queries and [module.kind for module in queries] != ["SparseStaticEmbedding"]:
        raise _unsupported_error(transformer, "has another model for queries")
    output_type = SparseOutput(
        queries="static" if queries else "model",
        double_log=pooling.get("activation_function") == "log1p_relu",
    )
    source = read_huggingface_folder(transformer, SentenceVectorSettings())
    new_tensors: dict[str, Tensor] = {}
    if queries:
        weights = read_tensors(queries[0].folder / WEIGHTS_FILE)["weight"].float()
        if bool((weights < 0).any()):
            raise _unsupported_error(queries[0].folder, "has negative weights of tokens")
        new_tensors["head.classifier.log_weights"] = log_token_weights(weights)
    return _build_model(source, output_type, new_tensors, precision)


def _load_multi_vector_encoder(
    folder: Path, modules: Mapping[str, ModuleFolder], precision: InferencePrecision | None
) -> FineTunedModel:
    transformer, dense = modules["Transformer"].folder, modules["Dense"]
    if dense.config.get("bias", True) or "Identity" not in dense.config["activation_function"]:
        raise _unsupported_error(folder, "projects with a bias or an activation")
    expansion = _transformer_settings(transformer).get("query_expansion")
    if not expansion or not expansion.get("attend") or expansion.get("strategy") != "fixed":
        raise _unsupported_error(folder, "does not attend to mask tokens that extend queries")
    source = read_huggingface_folder(transformer, SentenceVectorSettings())
    skipped = set(modules["MultiVectorMask"].config.get("skiplist_words") or [])
    marks = {mark for mark in string.punctuation if source.tokenizer.token_to_id(mark) is not None}
    if skipped and skipped & marks != marks:
        raise _unsupported_error(folder, "skips tokens other than punctuation")
    weight = read_tensors(dense.folder / WEIGHTS_FILE)["linear.weight"]
    prompts = _read_json(folder / MODEL_CONFIG_FILE).get("prompts") or {}
    output_type = LateInteractionOutput(
        dimension=len(weight),
        query_length=expansion["length"],
        query_prefix=_read_prefix(folder, source.tokenizer, prompts.get("query") or ""),
        document_prefix=_read_prefix(folder, source.tokenizer, prompts.get("document") or ""),
        skip_punctuation=bool(skipped),
    )
    return _build_model(source, output_type, {"head.classifier.weight": weight}, precision)


def _build_model(
    source: HuggingFaceFolder,
    output_type: SparseOutput | LateInteractionOutput,
    new_tensors: Mapping[str, Tensor],
    precision: InferencePrecision | None,
) -> FineTunedModel:
    """Return the model with the tensors of a stock class and of the other modules."""
    task = Task("retrieval", output_type, find_task("retrieval").reader)
    spec = HeadSpec(
        default_head(source.recipe, output_type), num_outputs(task), output_type.kind_name()
    )
    with torch.device("meta"):
        task_model = TaskModel(source.recipe, source.num_embeddings, spec)
    prefixes = {"encoder.": "encoder."} | ({"output.": "lm_head."} if spec.uses_lm_head else {})
    tensors = {
        new_prefix + name.removeprefix(prefix): tensor
        for prefix, new_prefix in prefixes.items()
        for name, tensor in source.tensors.items()
        if name.startswith(prefix)
    }
    load_tensors(task_model, {**tensors, **new_tensors}, str(source.folder))
    stated = _transformer_settings(source.folder).get("max_seq_length")
    limits = (stated or read_model_max_length(source.folder), task_model.encoder.max_length)
    length = min((limit for limit in limits if limit is not None), default=None)
    return FineTunedModel(task_model.eval(), source.tokenizer, task, length, precision)


def _read_routes(folder: Path) -> dict[str, list[ModuleFolder]]:
    """Return the modules of documents and, if a router has others for queries, of queries."""
    router = _read_json(folder / ROUTER_FILE)
    if not router:
        modules = read_json_file(folder, MODULES_FILE, list)
        return {"document": [_module(m["type"], folder / m.get("path", "")) for m in modules]}
    try:
        return {
            route: [_module(router["types"][name], folder / name) for name in names]
            for route, names in router["structure"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{folder / ROUTER_FILE} does not describe its modules ({error}): download it again"
        ) from error


def _module(class_name: str, folder: Path) -> ModuleFolder:
    return ModuleFolder(class_name.rpartition(".")[2], folder)


def _transformer_settings(folder: Path) -> Mapping[str, Any]:
    return next(filter(None, (_read_json(folder / name) for name in TRANSFORMER_CONFIG_FILES)), {})


def _read_prefix(folder: Path, tokenizer: Tokenizer, prompt: str) -> str:
    """Return the prefix that gives the same tokens as a prompt."""
    if tokenizer.token_to_id(prompt.strip()) in tokenizer.reserved_ids or not prompt:
        return prompt.strip()
    if not prompt.endswith(" "):
        raise _unsupported_error(folder, f"has the prompt {prompt!r}, without a space at its end")
    return prompt.removesuffix(" ")


def _read_json(file: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; empty if there is none."""
    return read_json_file(file.parent, file.name)


def _unsupported_error(folder: Path, reason: str) -> UserError:
    return UserError(f"{folder} {reason}, which no output type for retrieval does")
