"""What a model is for, as the names of stock classes end: ``ForMaskedLM`` and the like.

The heads of pre-training are the objectives'; the heads of tasks are those of fine-tuning, and a
stock class has one fixed kind of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bertwright.interop.huggingface.renaming import Table
from bertwright.model import Model
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.task_model import TaskModel

Net = Model | TaskModel

BARE, MASKED, CAUSAL, TRAINED = "Model", "ForMaskedLM", "LMHeadModel", "ForPreTraining"
DECODED = "ForConditionalGeneration"
TEXTS, WORDS = "ForSequenceClassification", "ForTokenClassification"
SPANS, OPTIONS = "ForQuestionAnswering", "ForMultipleChoice"

POOLER = "pooler"
"""Of our model, where no head has it."""

OVER_TEXTS: Table = (
    ("head.enter.dense", ("classifier.dense",)),
    ("head.out", ("classifier.out_proj",)),
)
"""A dense layer and a linear map, as several stock classes for whole texts name them."""

PROBLEMS = {
    "class": "single_label_classification",
    "labels": "multi_label_classification",
    "number": "regression",
}
"""What stock configurations call the kinds of answers that a whole text has."""

READS = {"cls": "first", "mean": "mean"}
"""Where a head reads a text from, in ModernBERT's words and in ours."""


@dataclass(frozen=True)
class Classifier:
    """The head of a stock class for a task.

    ``kinds`` are our heads that compute the same, first the one that it becomes; ``reads`` is where
    it may read from; ``activation`` that of a dense layer.
    """

    kinds: tuple[str, ...]
    reads: tuple[str, ...]
    table: Table
    activation: str = "tanh"

    def choice(self, read: str) -> HeadChoice:
        """Our head that computes the same, reading from there."""
        own = {} if self.activation == "tanh" else {"activation": self.activation}
        return HeadChoice.choose({"kind": self.kinds[0], "read": read, **own})

    def reasons(self, net: TaskModel, class_name: str) -> Iterator[str]:
        """Why a stock class does not compute a head of ours."""
        choice = net.choice
        kind: str = choice.kind  # type: ignore[attr-defined]
        if kind not in self.kinds:
            yield f"head.kind is {kind} ({class_name}: {self.kinds[0]})"
        elif (own := getattr(choice, "activation", "tanh")) != self.activation:
            yield f"head.activation is {own} ({class_name}: {self.activation})"
        if choice.read not in self.reads:
            yield f"head.read is {choice.read} ({class_name}: {' or '.join(self.reads)})"
        if net.head.layers.numbers != (len(net.encoder.blocks),):
            yield f"head.layers is {choice.layers} ({class_name}: last)"
        elif choice.mix == "learned":
            yield f"head.mix is learned ({class_name}: none)"


def task_purpose(net: TaskModel) -> str:
    """What the head of a fine-tuned model is for."""
    by_answer = {"span": SPANS, "option": OPTIONS}
    return by_answer.get(net.plan.answer, WORDS if net.choice.read == "places" else TEXTS)


def reads_output(net: Net) -> bool:
    """Whether a model computes with the output that its recipe describes, or a part of it."""
    if isinstance(net, TaskModel):
        return any(name.startswith("head.enter.norm.") for name, _ in net.named_parameters())
    return net.output is not None
