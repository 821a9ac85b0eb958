"""What llama.cpp does with the hidden states of a text: a vector, or the logits of a task."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.interop.gguf.architectures import LlamaArchitecture
from bertwright.interop.huggingface.head_types import StockTaskHead
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.tasks.prediction import needs_pairs
from bertwright.tasks.text_encoder import embedding_config

POOLING_TYPES = {"mean": 1, "cls": 2, "first": 2}
"""Pooling types of llama.cpp by our poolings."""

RANK = 4
"""Pooling type of llama.cpp for the logits of a classifier."""


@dataclass(frozen=True)
class LlamaHead:
    """The keys and tensors of a head by our names, both empty for an encoder."""

    metadata: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def is_classifier(self) -> bool:
        """Return whether the outputs are logits."""
        return bool(self.tensors)


def llama_head(model: TextModel, architecture: LlamaArchitecture) -> LlamaHead:
    """Return the head of a model; its classifier is divided by the temperature.

    Raises UserError naming the axis that llama.cpp does not have.
    """
    if model.model.recipe.assembly.ends_with_start_token:
        raise UserError("assembly ends with the start token (llama.cpp: starts with it)")
    if model.model.vector_projection is not None:
        raise _unsupported("vectors.projection maps vectors after pooling (llama.cpp: no such map)")
    if not isinstance(model, FineTunedModel):
        return _embedding_head(model)
    output_type, task_model = model.task.output_type, model.task_model
    if isinstance(output_type, SimilarityOutput):
        if embedding_config(output_type, task_model.head_config, 1) is None:
            raise _unsupported(
                f"head.pooling is {task_model.head_config.pooling} of layers "
                f"{task_model.head_config.layers} (llama.cpp: mean or first of the last layer)"
            )
        return _embedding_head(model)
    kind = output_type.kind_name()
    if output_type.level != "sequence" or output_type.is_grouped:
        raise _unsupported(f"output_type is {kind} (llama.cpp: class, labels, number, relevance)")
    if not architecture.head_kinds:
        raise _unsupported(f"llama.cpp's {architecture.name} has no task head")
    stock_head = StockTaskHead(architecture.head_kinds, ("first", "mean"), architecture.head_table)
    name = f"llama.cpp's {architecture.name}"
    reasons = list(stock_head.mismatches(task_model, name))
    output = model.task_model.recipe.output
    if getattr(task_model.head_config, "kind", "") == "transform" and (
        output.transform_bias or output.activation not in ("gelu", "gelu-tanh")
    ):
        reasons.append(f"output.transform has a bias or is not gelu ({name}: neither)")
    if task_model.recipe.encoder.has_segments and needs_pairs(model.task):
        reasons.append(f"encoder.embeddings.segments tell two texts apart ({name}: one segment)")
    if reasons:
        raise _unsupported("; ".join(reasons))
    num_outputs = task_model.head_spec.num_outputs
    labels = model.task.labels or tuple(f"LABEL_{index}" for index in range(num_outputs))
    tensors = {
        name: tensor / model.temperature if ".classifier." in name else tensor
        for name, tensor in task_model.named_parameters()
        if name.startswith("head.")
    }
    metadata = {
        "pooling_type": RANK,
        "classifier.pooling_type": POOLING_TYPES[task_model.head_config.pooling],
        "classifier.output_labels": list(labels),
    }
    return LlamaHead(metadata, tensors)


def _embedding_head(model: TextModel) -> LlamaHead:
    return LlamaHead({"pooling_type": POOLING_TYPES[model.model.recipe.vectors.pooling]}, {})


def _unsupported(reason: str) -> UserError:
    return UserError(f"llama.cpp does not compute this model: {reason}: export to onnx instead")
