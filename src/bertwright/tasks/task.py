"""What a task is: examples, the kind of answer that they ask for, and how answers are scored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.metrics import metric

Answer = Literal["class", "number", "tags"]
"""One class for a text or a pair, one number for them, or one tag for every word."""


@dataclass(frozen=True)
class Task:
    """A task that a model can be fine-tuned for.

    Predictions and references are written as the files write them: class names, numbers, tuples of
    tags. So a label that occurs only in the held-out part is no special case: it is never right.
    """

    name: str
    answer: Answer
    read: Callable[[Path], Sequence[Example] | Sequence[TaggedWords]]
    """The examples of one file."""
    metrics: tuple[str, ...]
    """What is reported; the first one chooses the best epoch."""
    labels: tuple[str, ...] = ()
    """The classes or tags in the order of the model's outputs; empty until gathered."""
    source: str = ""

    def gathered(self, examples: Sequence[Example] | Sequence[TaggedWords]) -> "Task":
        """This task with the labels of its training examples, unless it came with its own."""
        if self.answer == "number" or self.labels:
            return self
        labels = tuple(sorted(self.labels_of(examples)))
        if len(labels) < 2:
            found = f"only the label {labels[0]!r}" if labels else "no labels"
            raise UserError(f"task {self.name}: the training examples have {found}: check the file")
        return replace(self, labels=labels)

    def score(self, references: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        """Every metric of the task, the one that counts first.

        For "class" both are sequences of labels, for "number" of floats, for "tags" of sequences of
        tags, one for every word.
        """
        return {name: metric(self.answer, name)(references, predictions) for name in self.metrics}

    def reference(self, example: Example | TaggedWords) -> Any:
        """The right answer to an example; None where it is not known."""
        if isinstance(example, TaggedWords):
            return example.tags
        is_class = self.answer == "class" and example.label is not None
        return str(example.label) if is_class else example.label

    def labels_of(self, examples: Sequence[Example] | Sequence[TaggedWords]) -> set[str]:
        """The classes, or tags, that examples have."""
        right = [known for e in examples if (known := self.reference(e)) is not None]
        return set(right) if self.answer == "class" else {tag for tags in right for tag in tags}
