"""Head types, named by the suffix of stock classes, such as ``ForMaskedLM``.

Pre-training heads belong to objectives, task heads to fine-tuned models; a stock class has only one
type.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bertwright.interop.huggingface.tensor_names import TensorNameTable
from bertwright.models import Model

if TYPE_CHECKING:  # importing a pre-trained model needs no tasks
    from bertwright.tasks.heads.head import HeadConfig
    from bertwright.tasks.task_model import TaskModel

EncoderModel: TypeAlias = "Model | TaskModel"

BASE, MASKED_LM, CAUSAL_LM, PRETRAINING = "Model", "ForMaskedLM", "LMHeadModel", "ForPreTraining"
CONDITIONAL_GENERATION = "ForConditionalGeneration"
SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION = (
    "ForSequenceClassification",
    "ForTokenClassification",
)
QUESTION_ANSWERING, MULTIPLE_CHOICE = "ForQuestionAnswering", "ForMultipleChoice"

POOLER = "pooler"
"""Tensor names of our pooler, for stock classes whose head does not have it."""

CLASSIFICATION_HEAD_TABLE: TensorNameTable = (
    ("head.trunk.dense", ("classifier.dense",)),
    ("head.classifier", ("classifier.out_proj",)),
)
"""Tensor names of a dense layer and a linear map, as in several stock classes."""

PROBLEM_TYPES = {
    "class": "single_label_classification",
    "labels": "multi_label_classification",
    "number": "regression",
}
"""``problem_type`` by output type."""

CLASSIFIER_POOLINGS = {"cls": "first", "mean": "mean"}
"""ModernBERT's ``classifier_pooling`` translated to our pooling."""


@dataclass(frozen=True)
class StockTaskHead:
    """The task head of a stock class.

    ``head_kinds`` are our equivalent heads, first the one to import; ``read_choices`` are the
    supported poolings; ``activation`` is the activation of the dense layer.
    """

    head_kinds: tuple[str, ...]
    read_choices: tuple[str, ...]
    table: TensorNameTable
    activation: str = "tanh"

    def head_config(self, read: str) -> "HeadConfig":
        """Return our equivalent head config with this pooling."""
        from bertwright.tasks.heads.head import HeadConfig

        activation = {} if self.activation == "tanh" else {"activation": self.activation}
        return HeadConfig.parse({"kind": self.head_kinds[0], "pooling": read, **activation})

    def mismatches(self, model: "TaskModel", class_name: str) -> Iterator[str]:
        """Yield reasons why the stock class does not compute our head."""
        config = model.head_config
        kind: str = config.kind  # type: ignore[attr-defined]
        if kind not in self.head_kinds:
            yield f"head.kind is {kind} ({class_name}: {self.head_kinds[0]})"
        elif (activation := getattr(config, "activation", "tanh")) != self.activation:
            yield f"head.activation is {activation} ({class_name}: {self.activation})"
        if config.pooling not in self.read_choices:
            choices = " or ".join(self.read_choices)
            yield f"head.pooling is {config.pooling} ({class_name}: {choices})"
        if model.head.layers.indices != (len(model.encoder.blocks),):
            yield f"head.layers is {config.layers} ({class_name}: last)"
        elif config.mix == "learned":
            yield f"head.mix is learned ({class_name}: none)"
        if config.norm != "none":
            yield f"head.norm is {config.norm} ({class_name}: none)"


TOKEN_HEAD = {
    TOKEN_CLASSIFICATION: StockTaskHead(
        ("plain",), ("positions",), (("head.classifier", ("classifier",)),)
    )
}
TOKEN_AND_SPAN_HEADS = TOKEN_HEAD | {
    QUESTION_ANSWERING: StockTaskHead(
        ("plain",), ("positions",), (("head.classifier", ("qa_outputs",)),)
    )
}
"""The task heads of most families, by head type."""


def task_head_type(model: "TaskModel") -> str:
    """Return the head type of a fine-tuned model."""
    by_output_kind = {"span": QUESTION_ANSWERING, "option": MULTIPLE_CHOICE}
    return by_output_kind.get(
        model.head_spec.output_kind,
        TOKEN_CLASSIFICATION
        if model.head_config.pooling == "positions"
        else SEQUENCE_CLASSIFICATION,
    )


def uses_output_layer(model: EncoderModel) -> bool:
    """Return whether a model uses the recipe's output layer, or part of it."""
    if isinstance(model, Model):
        return model.output is not None
    return any(name.startswith("head.trunk.norm.") for name, _ in model.named_parameters())
