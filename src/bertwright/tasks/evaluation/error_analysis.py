"""Errors of a model: confused labels, and wrong predictions, the most confident first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.metrics.squad import exact_match
from bertwright.tasks.outputs import (
    ClassificationOutput,
    ClassInWordsOutput,
    MatchingOutput,
    MultiLabelOutput,
    Prediction,
    RelevanceOutput,
    SpanOutput,
    TokenClassificationOutput,
)
from bertwright.tasks.prediction import prediction_records
from bertwright.tasks.task import Task

CLASS_OUTPUTS = (ClassificationOutput, ClassInWordsOutput, TokenClassificationOutput)
"""Output types of classes or tags, one for each text or word."""

ConfusionCounts = dict[str, dict[str, int]]
"""Number of predictions per label, by reference label."""


def confusion_matrix(
    task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]
) -> ConfusionCounts:
    """Return the confusion counts of a task with classes or tags; {} for other tasks."""
    if not isinstance(task.output_type, CLASS_OUTPUTS):
        return {}
    counts: Counter[tuple[str, str]] = Counter()
    for example, prediction in zip(examples, predictions, strict=True):
        reference: Any = task.output_type.reference(example)
        value: Any = prediction.value
        is_class = isinstance(reference, str)
        pairs = [(reference, value)] if is_class else zip(reference, value, strict=True)
        counts.update((str(a), str(b)) for a, b in pairs)
    matrix: ConfusionCounts = {}
    for (reference, value), count in sorted(counts.items()):
        matrix.setdefault(reference, {})[value] = count
    return matrix


def iter_errors(
    task: Task, examples: Examples, predictions: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    """Iterate over wrong predictions, with inputs and references, the most confident first.

    For numeric tasks all predictions are included, largest error first, in the units of
    predictions.
    """
    lines = list(prediction_records(examples, predictions, task))
    if task.output_type.label_kind == "number":
        max_label = _max_label(task, lines)
        errors = [(_absolute_error(line, max_label), line) for line in lines]
    else:
        errors = [
            (_error_confidence(line, prediction), line)
            for line, prediction in zip(lines, predictions, strict=True)
            if not _is_correct(task, line)
        ]
    for _, line in sorted(errors, key=lambda error: -error[0]):
        yield line


def _max_label(task: Task, records: Sequence[dict[str, Any]]) -> float:
    """Return the label that a prediction of 1 means: 1 for plain numbers."""
    if isinstance(task.output_type, MatchingOutput):
        return task.output_type.max_label
    if isinstance(task.output_type, RelevanceOutput):
        return max([1.0, *(float(line["reference"]) for line in records)])
    return 1.0


def _is_correct(task: Task, record: dict[str, Any]) -> bool:
    reference, value = record["reference"], record["prediction"]
    match task.output_type:
        case MultiLabelOutput():
            return set(reference) == set(value)
        case SpanOutput():
            return exact_match([reference], [value]) == 1.0
        case _:
            return reference == value


def _absolute_error(record: dict[str, Any], max_label: float) -> float:
    return abs(float(record["reference"]) / max_label - float(record["prediction"]))


def _error_confidence(record: dict[str, Any], prediction: Prediction) -> float:
    """Return the highest probability of a wrong tag, or of a wrongly predicted or missed label."""
    reference, value, probs = record["reference"], prediction.value, prediction.probabilities
    if isinstance(probs, dict) and isinstance(value, tuple):
        wrong = {label: probs.get(label, 0.0) for label in set(reference) ^ set(value)}
        return max(p if label in value else 1 - p for label, p in wrong.items())
    if isinstance(probs, dict):
        return max(probs.values())
    if isinstance(probs, tuple) and isinstance(value, tuple):
        return max(p for a, b, p in zip(reference, value, probs, strict=True) if a != b)
    return max(probs, default=0.0) if isinstance(probs, tuple) else float(probs or 0.0)
