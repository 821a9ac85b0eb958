"""The parts of a training: its tasks, each with its examples as rows, and whose turn a step is."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.randomness import Permutation, key
from bertwright.tasks.answers import Answering
from bertwright.tasks.answers.answer import told
from bertwright.tasks.bucketing import BatchPlan
from bertwright.tasks.encoding import RowMaker, TaskRow, pieces_cut
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class Part:
    """One task that is trained, alone or among others.

    Attributes:
        items: the numbers of the rows that are trained together: all rows of an example where its
            answer keeps them together, else one.
        targets: what each item is asked for.
        unplaced: the numbers of the examples that have no item, because no token stands for their
            answer.
    """

    task: Task
    train: Examples
    dev: Examples
    answering: Answering
    rows: Sequence[TaskRow]
    items: Sequence[range]
    targets: Sequence[Sequence[float]]
    unplaced: Sequence[int] = ()

    @staticmethod
    def of(task: Task, train: Examples, dev: Examples, maker: RowMaker) -> "Part":
        """The examples of a task whose labels are known, as an encoder takes them."""
        train = task.answer.taught_by(train)
        answering = task.answer.build(task.labels).fitted(train)
        rows = answering.rows(maker, train)
        items = _items(rows, task.answer.together)
        owners = [rows[item.start].example for item in items]
        targets = [
            answering.targets([rows[n] for n in item], train[owner])
            for item, owner in zip(items, owners, strict=True)
        ]
        unplaced = _unplaced(answering, train, owners, targets)
        if len(unplaced) == len(train):
            raise UserError(
                f"{told(train[0])}: no token of its text stands for the answer, nor of any other "
                f"example: check answer_start, and that the tokenizer knows the script"
            )
        if unplaced:
            kept = [n for n, owner in enumerate(owners) if owner not in unplaced]
            items, targets = [items[n] for n in kept], [targets[n] for n in kept]
        return Part(task, train, dev, answering, rows, items, targets, sorted(unplaced))

    @property
    def lengths(self) -> Sequence[int]:
        """Of the items: that of their longest row."""
        return [max(len(self.rows[n].pieces) for n in item) for item in self.items]

    @property
    def asks_numbers(self) -> bool:
        """Whether targets are no indices."""
        return any(isinstance(t, float) for some in self.targets[:1] for t in some)

    def cut(self) -> list[int]:
        """The numbers of the examples that lost pieces, because no row is long enough."""
        return sorted(pieces_cut(self.rows))

    @cached_property
    def seen(self) -> list[int]:
        """The numbers of the examples that judge and read like one that is learned from."""
        judging = {example.read for example in self.dev}
        learned = {example.read for example in self.train if example.read in judging}
        return [number for number, example in enumerate(self.dev) if example.read in learned]


@dataclass(frozen=True)
class Turn:
    """Whose turn a step is, and how many steps the same part has had before."""

    part: int
    step: int


@dataclass(frozen=True)
class Turns:
    """Which part each step of an epoch trains: a pure function of the seed and the step.

    An epoch has as many steps as all parts need to see their examples once. How they share it goes
    by the power of how many they have: 1 in proportion, 0 equally.
    """

    shares: tuple[int, ...]
    seed: int
    _order: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def of(plans: Sequence[BatchPlan], power: float, seed: int) -> "Turns":
        """The turns of parts that are batched so."""
        steps = np.array([plan.steps_per_epoch for plan in plans], dtype=np.float64)
        weights = steps**power
        wanted = steps.sum() * weights / weights.sum()
        shares = np.maximum(np.floor(wanted), 1).astype(np.int64)
        # What rounding left over goes where most of it is missing.
        for part in np.argsort(shares - wanted)[: int(max(steps.sum() - shares.sum(), 0))]:
            shares[part] += 1
        return Turns(tuple(shares.tolist()), seed)

    @property
    def steps_per_epoch(self) -> int:
        """Of all parts together."""
        return sum(self.shares)

    def at(self, step: int) -> Turn:
        """The turn of a step of the run."""
        epoch, within = divmod(step, self.steps_per_epoch)
        order = self._of(epoch)
        part = int(order[within])
        before = int((order[:within] == part).sum())
        return Turn(part, epoch * self.shares[part] + before)

    def _of(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._order:
            self._order.clear()
            parts = np.repeat(np.arange(len(self.shares)), self.shares)
            mixed = Permutation(len(parts), key(self.seed, "finetuning", "turns", epoch))
            self._order[epoch] = parts[mixed(np.arange(len(parts)))]
        return self._order[epoch]


def plans_of(parts: Sequence[Part], batch: int, seed: int) -> list[BatchPlan]:
    """How the items of each part are batched."""
    plans = [BatchPlan.of(part.lengths, batch) for part in parts]
    return [replace(plan, seed=seed) for plan in plans]


def places_per_epoch(parts: Sequence[Part], plans: Sequence[BatchPlan]) -> int:
    """Places that an epoch computes: what it costs."""
    return sum(
        round(plan.places_per_epoch * len(part.rows) / len(part.items))
        for part, plan in zip(parts, plans, strict=True)
    )


def target_type(part: Part) -> torch.dtype:
    """Of a tensor of targets."""
    return torch.float32 if part.asks_numbers else torch.int64


def _unplaced(
    answering: Answering,
    examples: Examples,
    owners: Sequence[int],
    targets: Sequence[Sequence[float]],
) -> set[int]:
    """Return the numbers of the examples whose answer is in the targets of none of their items."""
    by_example: dict[int, list[Sequence[float]]] = {}
    for owner, target in zip(owners, targets, strict=True):
        by_example.setdefault(owner, []).append(target)
    return {n for n, of in by_example.items() if not answering.is_placed(of, examples[n])}


def _items(rows: Sequence[TaskRow], together: bool) -> list[range]:
    if not together:
        return [range(number, number + 1) for number in range(len(rows))]
    starts = [n for n, row in enumerate(rows) if not n or row.example != rows[n - 1].example]
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(rows)], strict=True)]
