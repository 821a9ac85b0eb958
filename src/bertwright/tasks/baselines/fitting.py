"""Which baselines a task has, fitted to its training examples."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from bertwright.tasks.baselines.baseline import Baseline, Matrix
from bertwright.tasks.baselines.frequencies import Constant, WordTags
from bertwright.tasks.baselines.linear import KIND_OF
from bertwright.tasks.baselines.vectors import VectorsLinear
from bertwright.tasks.baselines.words import WordsCosine, WordsLinear, WordsSpan
from bertwright.tasks.distant import Distant
from bertwright.tasks.formats.examples import Example, Examples, Question, TaggedWords
from bertwright.tasks.splitting import nested_order
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Training

MAX_EXAMPLES = 20_000
"""So many training examples are used at most, drawn and stratified by label."""

Vectors = Callable[[Sequence[int]], Sequence[Matrix]]
"""What the head of a frozen encoder reads of the training examples of these numbers."""


def fit_baselines(task: Task, examples: Examples, vectors: Vectors | None = None) -> list[Baseline]:
    """Return the baselines of a task: what is most frequent, what words alone say, and with
    ``vectors`` a linear model on these; none for a kind of answer that is not known."""
    numbers = [*range(len(examples))]
    if len(examples) > MAX_EXAMPLES:
        numbers = sorted(nested_order(task, examples, 0)[:MAX_EXAMPLES])
    some = [examples[number] for number in numbers]
    baselines: list[Baseline | None] = [Constant.fit(task, some)]
    kind = task.answer.own_kind()
    match kind:
        case "class" | "cloze" | "labels" | "number":
            baselines.append(WordsLinear.fit(task, cast(Sequence[Example], some)))
        case "tags":
            baselines.append(WordTags.fit(cast(Sequence[TaggedWords], some)))
        case "closeness" | "relevance" | "option":
            baselines.append(WordsCosine.fit(task, some))
        case "span":
            baselines.append(WordsSpan.fit(cast(Sequence[Question], some)))
        case _:
            pass
    if vectors is not None and kind in KIND_OF:
        baselines.append(VectorsLinear.fit(task, some, vectors(numbers)))
    return [baseline for baseline in baselines if baseline is not None]


def part_baselines(training: Training, number: int) -> list[Baseline]:
    """Return the baselines of one part of a training, whose head may have read frozen features;
    none where its examples lie on the disk, labelled by a teacher."""
    part = training.parts[number]
    if isinstance(part.train, Distant):
        return []
    if not training.kept_states:
        return fit_baselines(part.task, part.train)
    by_row = training.kept_states[0].training(number)
    by_example: dict[int, list[Matrix]] = {}
    for row, features in zip(part.rows, by_row, strict=True):
        by_example.setdefault(row.example, []).append(features.float().numpy())

    def vectors(numbers: Sequence[int]) -> list[Matrix]:
        return [np.concatenate(by_example[number]) for number in numbers]

    return fit_baselines(part.task, part.train, vectors)
