"""The baselines of a task, fitted to its training examples."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bertwright.tasks.baselines.baseline import FloatMatrix, TaskBaseline
from bertwright.tasks.baselines.frequency import (
    ConstantBaseline,
    CopyBaseline,
    NeighbourHeadBaseline,
    WordTagBaseline,
)
from bertwright.tasks.baselines.linear import FeatureLinearBaseline, linear_kind
from bertwright.tasks.baselines.tf_idf import (
    SlidingWindowBaseline,
    TfIdfCosineBaseline,
    TfIdfLinearBaseline,
)
from bertwright.tasks.data.lazy_examples import LazyExamples
from bertwright.tasks.data.splits import stratified_order
from bertwright.tasks.finetuning.run import FineTuningRun
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs import (
    ClassInWordsOutput,
    DependencyHeadOutput,
    MatchingOutput,
    MultipleChoiceOutput,
    NumberInWordsOutput,
    RelevanceOutput,
    SpanOutput,
    TextOutput,
    TokenClassificationOutput,
)
from bertwright.tasks.outputs.classification import SequenceOutput
from bertwright.tasks.task import Task

MAX_EXAMPLES = 20_000
"""Maximum number of training examples to fit to, stratified by label."""

FeatureReader = Callable[[Sequence[int]], Sequence[FloatMatrix]]
"""Reads the features of a frozen encoder for the training examples with these indices."""


def fit_baselines(
    task: Task, examples: Examples, read_features: FeatureReader | None = None
) -> list[TaskBaseline]:
    """Fit the baselines of a task: a constant, one on words, and a linear model on features."""
    indices = [*range(len(examples))]
    if len(examples) > MAX_EXAMPLES:
        indices = sorted(stratified_order(task, examples, 0)[:MAX_EXAMPLES])
    examples = [examples[index] for index in indices]
    baselines: list[TaskBaseline | None] = [ConstantBaseline.fit(task, examples)]
    texts: Any = examples
    kind = linear_kind(task.output_type)
    match task.output_type:
        case SequenceOutput() | ClassInWordsOutput() | NumberInWordsOutput() if kind is not None:
            baselines.append(TfIdfLinearBaseline.fit(kind, task, texts))
        case TokenClassificationOutput():
            baselines.append(WordTagBaseline.fit(texts))
        case DependencyHeadOutput():
            baselines.append(NeighbourHeadBaseline.fit(texts))
        case MatchingOutput() | RelevanceOutput() | MultipleChoiceOutput():
            baselines.append(TfIdfCosineBaseline.fit(task, texts))
        case TextOutput():
            baselines.append(CopyBaseline.fit(task, texts))
        case SpanOutput():
            baselines.append(SlidingWindowBaseline.fit(texts))
        case _:
            pass
    if read_features is not None and kind is not None:
        baselines.append(FeatureLinearBaseline.fit(kind, task, examples, read_features(indices)))
    return [baseline for baseline in baselines if baseline is not None]


def run_baselines(run: FineTuningRun, task_index: int) -> list[TaskBaseline]:
    """Return the baselines of one task of a run, with its frozen features if it has any.

    None if the examples are lazy, that is labelled by a teacher.
    """
    encoded_task = run.encoded_tasks[task_index]
    if isinstance(encoded_task.train, LazyExamples):
        return []
    if not run.frozen_features:
        return fit_baselines(encoded_task.task, encoded_task.train)
    by_sequence = run.frozen_features[0].training_features(task_index)
    by_example: dict[int, list[FloatMatrix]] = {}
    for sequence, features in zip(encoded_task.sequences, by_sequence, strict=True):
        by_example.setdefault(sequence.example_index, []).append(features.float().numpy())

    width = by_sequence[0].shape[1]

    def read_features(indices: Sequence[int]) -> list[FloatMatrix]:
        # A sentence without words has no sequence.
        nothing = np.empty((0, width), np.float32)
        return [np.concatenate(by_example.get(index, [nothing])) for index in indices]

    return fit_baselines(encoded_task.task, encoded_task.train, read_features)
