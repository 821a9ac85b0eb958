"""Parts of the examples of a task: drawn, stratified by label, and of groups that stay together.

Every label has its fraction of every part, as far as it has examples enough. A text with several
labels, or a sentence with several tags, counts for the rarest of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.errors import UserError
from bertwright.randomness import Permutation, key
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task

HELD_OUT = 0.1
"""Of the training examples, where there is no development part."""


@dataclass(frozen=True)
class _Groups:
    """What is judged together, in a drawn order.

    Attributes:
        of: the group of every example.
        order: the groups of every stratum, in the drawn order; strata by name.
    """

    of: Sequence[int]
    order: Mapping[str, Sequence[int]]

    @staticmethod
    def draw(task: Task, examples: Examples, seed: int) -> "_Groups":
        stated = [task.answer.group(example) for example in examples]
        names = [number if group is None else group for number, group in enumerate(stated)]
        numbers = {group: number for number, group in enumerate(dict.fromkeys(names))}
        of = [numbers[group] for group in names]
        strata = [""] * len(numbers)
        for group, stratum in zip(of, task.answer.strata(examples), strict=True):
            strata[group] = stratum
        drawn = np.argsort(drawn_order(len(numbers), seed)).tolist()
        order: dict[str, list[int]] = {stratum: [] for stratum in sorted(set(strata))}
        for group in drawn:
            order[strata[group]].append(group)
        return _Groups(of, order)

    def __len__(self) -> int:
        return sum(map(len, self.order.values()))


def held_out(
    task: Task, examples: Examples, fraction: float = HELD_OUT
) -> tuple[Examples, Examples]:
    """Return training examples, and a fraction of them that is held out, the same whatever the
    seed of the training.

    Errors: UserError where there is nothing to train on beside it.
    """
    groups = _Groups.draw(task, examples, 0)
    count = max(1, round(fraction * len(groups)))
    if len(groups) <= count:
        what = "example" if len(groups) == len(examples) else "group of examples"
        raise UserError(f"one {what} is not enough to train and to judge: give more, or --dev FILE")
    seats = _seats({stratum: len(of) for stratum, of in groups.order.items()}, count)
    judged = {group for stratum, of in groups.order.items() for group in of[: seats[stratum]]}
    if not judged:  # no label has two examples
        judged = {group for of in groups.order.values() for group in of[:1]}
        judged = set(sorted(judged)[:count])
    return (
        [e for e, group in zip(examples, groups.of, strict=True) if group not in judged],
        [e for e, group in zip(examples, groups.of, strict=True) if group in judged],
    )


def folds_of(
    task: Task, examples: Examples, folds: int, seed: int
) -> list[tuple[Examples, Examples]]:
    """Return for every fold what is trained on, and what judges; every example judges once.

    Errors: UserError for more folds than there are pairs of groups.
    """
    most = num_groups(task, examples) // 2
    if not 2 <= folds <= most:
        raise UserError(
            f"--folds {folds}: choose from 2 to {most}, half of what is judged by itself"
        )
    fold = fold_numbers(task, examples, folds, seed)
    return [
        (
            [e for e, f in zip(examples, fold, strict=True) if f != number],
            [e for e, f in zip(examples, fold, strict=True) if f == number],
        )
        for number in range(folds)
    ]


def fold_numbers(task: Task, examples: Examples, folds: int, seed: int) -> list[int]:
    """Return the fold of every example."""
    groups = _Groups.draw(task, examples, seed)
    place = {group: n for n, group in enumerate(g for of in groups.order.values() for g in of)}
    return [place[group] % folds for group in groups.of]


def num_groups(task: Task, examples: Examples) -> int:
    """Return how many groups are judged together; examples of no group count as one each."""
    stated = [task.answer.group(example) for example in examples]
    return len({group for group in stated if group is not None}) + stated.count(None)


def nested_order(task: Task, examples: Examples, seed: int) -> list[int]:
    """Return the numbers of the examples in an order of which every beginning is stratified."""
    order: dict[str, list[int]] = {}
    strata = task.answer.strata(examples)
    drawn = np.argsort(drawn_order(len(examples), seed)).tolist()
    for number in drawn:
        order.setdefault(strata[number], []).append(number)
    due = {n: (rank + 0.5) / len(of) for of in order.values() for rank, n in enumerate(of)}
    return sorted(drawn, key=lambda number: due[number])


def drawn_order(number: int, seed: int) -> Sequence[int]:
    """Return the place of each of so many examples in an order that is drawn."""
    return Permutation(number, key(seed, "finetuning", "held-out"))(np.arange(number)).tolist()


def lacking(task: Task, of: Examples, beside: Examples) -> list[str]:
    """Return the labels of some examples that others have none of."""
    return sorted(task.labels_of(of) - task.labels_of(beside))


def _seats(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many of ``count`` go to every stratum: its fraction, never all of it, and what
    rounding leaves over first where there is none."""
    total = sum(sizes.values())
    quota = {stratum: count * size / total for stratum, size in sizes.items()}
    seats = {stratum: min(int(quota[stratum]), size - 1) for stratum, size in sizes.items()}
    while sum(seats.values()) < count:
        free = [stratum for stratum, size in sizes.items() if seats[stratum] < size - 1]
        if not free:
            break
        seats[max(free, key=lambda s: (seats[s] == 0, quota[s] - seats[s]))] += 1
    return seats
