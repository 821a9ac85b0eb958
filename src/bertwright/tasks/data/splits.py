"""Random splits of the examples of a task, stratified by label, with groups kept together.

Every label has the same fraction in every split, as far as its number of examples allows. A text
with several labels, or a sentence with several tags, counts towards the rarest of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task

HELD_OUT_FRACTION = 0.1
"""Fraction of the training examples held out if there is no development split."""


@dataclass(frozen=True)
class _StratifiedGroups:
    """Groups of examples that stay together, in random order.

    Attributes:
        group_of_example: the group of every example.
        order: the groups of each stratum in random order, by name of the stratum.
    """

    group_of_example: Sequence[int]
    order: Mapping[str, Sequence[int]]

    @staticmethod
    def build(task: Task, examples: Examples, seed: int) -> "_StratifiedGroups":
        groups = [task.output_type.group(example) for example in examples]
        names = [index if group is None else group for index, group in enumerate(groups)]
        indices = {name: index for index, name in enumerate(dict.fromkeys(names))}
        group_of_example = [indices[name] for name in names]
        strata = [""] * len(indices)
        for group, stratum in zip(group_of_example, task.output_type.strata(examples), strict=True):
            strata[group] = stratum
        shuffled = np.argsort(random_ranks(len(indices), seed)).tolist()
        order: dict[str, list[int]] = {stratum: [] for stratum in sorted(set(strata))}
        for group in shuffled:
            order[strata[group]].append(group)
        return _StratifiedGroups(group_of_example, order)

    def __len__(self) -> int:
        return sum(map(len, self.order.values()))


def hold_out(
    task: Task, examples: Examples, fraction: float = HELD_OUT_FRACTION
) -> tuple[Examples, Examples]:
    """Return training and held-out examples; the split does not depend on the training seed.

    Errors: UserError if no training examples would remain.
    """
    groups = _StratifiedGroups.build(task, examples, 0)
    count = max(1, round(fraction * len(groups)))
    if len(groups) <= count:
        unit = "example" if len(groups) == len(examples) else "group of examples"
        raise UserError(
            f"one {unit} is not enough for training and evaluation: give more, or --dev FILE"
        )
    order = groups.order
    sizes = _allocate({stratum: len(members) for stratum, members in order.items()}, count)
    held_out = {group for name, members in order.items() for group in members[: sizes[name]]}
    if not held_out:  # no label has two examples
        held_out = set(sorted(members[0] for members in order.values())[:count])
    return _partition(examples, [group in held_out for group in groups.group_of_example])


def _partition(examples: Examples, is_held_out: Sequence[bool]) -> tuple[Examples, Examples]:
    """Return training and held-out examples."""
    return (
        [e for e, held_out in zip(examples, is_held_out, strict=True) if not held_out],
        [e for e, held_out in zip(examples, is_held_out, strict=True) if held_out],
    )


def stratified_folds(
    task: Task, examples: Examples, num_folds: int, seed: int
) -> list[tuple[Examples, Examples]]:
    """Return training and held-out examples of each fold; every example is held out once.

    Errors: UserError for more folds than half the number of groups, and for fewer than four groups.
    """
    max_folds = num_groups(task, examples) // 2
    if max_folds < 2:
        raise UserError(
            f"{count_noun(len(examples), 'example')} cannot be split into folds: name a file of "
            f"four examples or groups, or more"
        )
    if not 2 <= num_folds <= max_folds:
        raise UserError(
            f"--folds {num_folds}: choose from 2 to {max_folds}, half the number of examples or "
            f"groups"
        )
    folds = fold_of_examples(task, examples, num_folds, seed)
    return [_partition(examples, [fold == number for fold in folds]) for number in range(num_folds)]


def fold_of_examples(task: Task, examples: Examples, num_folds: int, seed: int) -> list[int]:
    """Return the fold of every example."""
    groups = _StratifiedGroups.build(task, examples, seed)
    ordered = (group for members in groups.order.values() for group in members)
    rank = {group: index for index, group in enumerate(ordered)}
    return [rank[group] % num_folds for group in groups.group_of_example]


def num_groups(task: Task, examples: Examples) -> int:
    """Return the number of groups; an example without a group counts as one."""
    groups = [task.output_type.group(example) for example in examples]
    return len({group for group in groups if group is not None}) + groups.count(None)


def stratified_order(task: Task, examples: Examples, seed: int) -> list[int]:
    """Return example indices in an order whose every prefix is stratified."""
    order: dict[str, list[int]] = {}
    strata = task.output_type.strata(examples)
    shuffled = np.argsort(random_ranks(len(examples), seed)).tolist()
    for index in shuffled:
        order.setdefault(strata[index], []).append(index)
    quantile = {
        index: (rank + 0.5) / len(members)
        for members in order.values()
        for rank, index in enumerate(members)
    }
    return sorted(shuffled, key=lambda index: quantile[index])


def random_ranks(size: int, seed: int) -> Sequence[int]:
    """Return the rank of each of ``size`` items in a random order."""
    return RandomPermutation(size, stream_key(seed, "finetuning", "held-out"))(
        np.arange(size)
    ).tolist()


def labels_missing_from(task: Task, examples: Examples, others: Examples) -> list[str]:
    """Return the labels of ``examples`` that do not occur in ``others``."""
    return sorted(task.labels_of(examples) - task.labels_of(others))


def _allocate(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Return how many of ``count`` go to every stratum: in proportion, but never all of a stratum.

    The remainder of rounding goes first to strata that have none.
    """
    total = sum(sizes.values())
    quota = {stratum: count * size / total for stratum, size in sizes.items()}
    allocated = {stratum: min(int(quota[stratum]), size - 1) for stratum, size in sizes.items()}
    while sum(allocated.values()) < count:
        open_strata = [stratum for stratum, size in sizes.items() if allocated[stratum] < size - 1]
        if not open_strata:
            break
        allocated[max(open_strata, key=lambda s: (allocated[s] == 0, quota[s] - allocated[s]))] += 1
    return allocated
