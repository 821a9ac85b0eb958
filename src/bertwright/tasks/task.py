"""A task: how its examples are read, its output type and its metrics."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.tasks.formats.example_reader import ExampleReader, InMemoryReader
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs.output_type import OutputType, location_of
from bertwright.tasks.outputs.prediction import Prediction

IN_MEMORY = InMemoryReader()


@dataclass(frozen=True)
class Task:
    """A task that a model can be fine-tuned for.

    Predictions and references are values as in the files: class names, numbers, tuples of tags. A
    label that only occurs in the held-out split is never predicted.
    """

    name: str
    output_type: OutputType
    reader: ExampleReader = IN_MEMORY
    metrics: tuple[str, ...] = ()
    """Metrics to report; the default is the output type's. The first selects the best epoch."""
    labels: Annotated[tuple[str, ...], Field(max_length=1 << 20)] = ()
    """Classes or tags in the order of model outputs; empty until read from the examples."""
    source: str = ""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "metrics", self.metrics or self.output_type.default_metrics_for(self.labels)
        )
        for name in self.metrics:
            self.output_type.metric(name)

    def read_examples(self, path: Path, with_labels: bool = True) -> Examples:
        """Read the examples of a file; UserError, with file and line, for an invalid one."""
        examples = self.reader.read(path, with_labels)
        self.output_type.validate_examples(examples)
        if with_labels:
            self._require_known_labels(examples)
        return examples

    def with_labels_from(self, examples: Examples) -> "Task":
        """Return this task with the labels of its training examples, unless it has labels."""
        if not self.output_type.has_labels or self.labels:
            return self
        labels = tuple(sorted(self.labels_of(examples)))
        if len(labels) < self.output_type.min_labels:
            problem = f"only the label {labels[0]!r}" if labels else "no labels"
            raise UserError(
                f"task {self.name}: {count_noun(len(examples), 'training example')} with "
                f"{problem}: check the file"
            )
        metrics = () if self.metrics == self.output_type.default_metrics else self.metrics
        labelled = replace(self, labels=labels, metrics=metrics)
        labelled.require_metrics_defined(examples)
        return labelled

    def require_metrics_defined(self, examples: Examples) -> None:
        """Raise UserError for labels for which a metric of the task is undefined."""
        self.output_type.require_metrics_defined(self.metrics, self.labels_of(examples))

    def require_labels(self, examples: Examples, split: str) -> None:
        """Raise UserError for invalid or unlabelled examples of a split, and for none."""
        if not examples:
            raise UserError(f"task {self.name}: the {split} split has no examples: give some")
        self.output_type.validate_examples(examples)
        for example in examples:
            if self.output_type.reference(example) is None:
                raise UserError(
                    f"{location_of(example)}: the {split} split has an example without a label"
                )
        self._require_known_labels(examples)

    def unknown_labels(self, examples: Examples) -> dict[str, str]:
        """Return the labels unknown to the task, each with the location of its first example."""
        locations: dict[str, str] = {}
        for example in examples if self.labels else ():
            for label in self.output_type.labels_in(example):
                if label not in self.labels:
                    locations.setdefault(label, location_of(example))
        return locations

    def score(
        self,
        examples: Examples,
        predictions: Sequence[Prediction],
        parts: Sequence[slice] | None = None,
    ) -> dict[str, float]:
        """Compute every metric of the task, the main one first; see :meth:`OutputType.score`."""
        return self.output_type.score(self.metrics, examples, predictions, parts)

    def labels_of(self, examples: Examples) -> set[str]:
        """Return the set of classes or tags of examples."""
        return {label for example in examples for label in self.output_type.labels_in(example)}

    def label_fractions(self, examples: Examples) -> dict[str, float]:
        """Return the relative frequency of each label."""
        counts = Counter(label for e in examples for label in self.output_type.labels_in(e))
        return {label: counts[label] / max(counts.total(), 1) for label in self.labels}

    def _require_known_labels(self, examples: Examples) -> None:
        if self.output_type.allows_unseen_labels:
            return
        for label, where in self.unknown_labels(examples).items():
            raise UserError(
                f"{where}: task {self.name} has no label {label!r}"
                f"{did_you_mean(label, self.labels)}"
            )


_TASK_ADAPTER = TypeAdapter(Task)


def task_as_dict(task: Task) -> dict[str, Any]:
    """Return a task as plain data, as stored with a fine-tuned model."""
    return _TASK_ADAPTER.dump_python(task, mode="json")
