"""What a task is: how its examples are read, what they ask, and how answers are scored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from bertwright.axes import Settings, did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.answers.answer import Answer, Prediction, told
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.reader import InPython, Reader

MADE_IN_PYTHON = InPython()


@dataclass(frozen=True)
class Task:
    """A task that a model can be fine-tuned for.

    Predictions and references are written as the files write them: class names, numbers, tuples of
    tags. So a label that occurs only in the held-out part is no special case: it is never right.
    """

    name: str
    answer: Answer
    reader: Reader = MADE_IN_PYTHON
    metrics: tuple[str, ...] = ()
    """What is reported, the usual where none is named; the first one chooses the best epoch."""
    labels: tuple[str, ...] = ()
    """The classes or tags in the order of the model's outputs; empty until gathered."""
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", self.metrics or self.answer.usual_for(self.labels))
        for name in self.metrics:
            self.answer.metric(name)

    def read(self, path: Path, labelled: bool = True) -> Examples:
        """The examples of a file; UserError, naming file and line, for what is none."""
        examples = self.reader.read(path, labelled)
        self.answer.checked(examples)
        if labelled:
            self._require_known(examples)
        return examples

    def named(self, name: str) -> "Task":
        """The same under another name."""
        return replace(self, name=name)

    def gathered(self, examples: Examples) -> "Task":
        """This task with the labels of its training examples, unless it came with its own."""
        if not self.answer.labelled or self.labels:
            return self
        labels = tuple(sorted(self.labels_of(examples)))
        if len(labels) < self.answer.least_labels:
            found = f"only the label {labels[0]!r}" if labels else "no labels"
            raise UserError(
                f"task {self.name}: the {len(examples):,} training examples have {found}: check "
                f"the file"
            )
        metrics = () if self.metrics == self.answer.usual_metrics else self.metrics
        labelled = replace(self, labels=labels, metrics=metrics)
        labelled.require_scored(examples)
        return labelled

    def require_scored(self, examples: Examples) -> None:
        """Refuse labels that a metric of the task has no meaning for: UserError."""
        self.answer.require_scored(self.metrics, self.labels_of(examples))

    def learnable(self, examples: Examples, part: str) -> None:
        """Errors: UserError for examples of a part that cannot be learned from, or judged by."""
        self.answer.checked(examples)
        for example in examples:
            if self.answer.reference(example) is None:
                raise UserError(f"{told(example)}: the {part} part has an example without a label")
        self._require_known(examples)

    def unseen(self, examples: Examples) -> dict[str, str]:
        """The labels of examples that the model cannot answer with, and where each stands first."""
        found: dict[str, str] = {}
        for example in examples if self.labels else ():
            for label in self.answer.labels_in(example):
                if label not in self.labels:
                    found.setdefault(label, told(example))
        return found

    def score(self, examples: Examples, predictions: Sequence[Prediction]) -> dict[str, float]:
        """Every metric of the task, the one that counts first."""
        return self.answer.score(self.metrics, examples, predictions)

    def labels_of(self, examples: Examples) -> set[str]:
        """The classes, or tags, that examples have."""
        return {label for example in examples for label in self.answer.labels_in(example)}

    def shares(self, examples: Examples) -> dict[str, float]:
        """How often each label stands among the examples."""
        counts = Counter(label for e in examples for label in self.answer.labels_in(e))
        return {label: counts[label] / max(counts.total(), 1) for label in self.labels}

    def _require_known(self, examples: Examples) -> None:
        if self.answer.open:
            return
        for label, where in self.unseen(examples).items():
            raise UserError(
                f"{where}: task {self.name} has no label {label!r}"
                f"{did_you_mean(label, self.labels)}"
            )


def described(task: Task) -> dict[str, Any]:
    """A task as plain data, so that a fine-tuned model can be asked again for what it learned."""
    return {
        "name": task.name,
        "answer": task.answer.model_dump(mode="json"),
        "reader": task.reader.model_dump(mode="json"),
        "metrics": list(task.metrics),
        "labels": list(task.labels),
        "source": task.source,
    }


class StoredTask(Settings):
    """A task as :func:`described` writes it."""

    name: str
    answer: Answer
    reader: Reader
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = Field(max_length=1 << 20)
    source: str

    def task(self) -> Task:
        """Return the task; UserError for a metric that does not belong to its answer."""
        return Task(self.name, self.answer, self.reader, self.metrics, self.labels, self.source)
