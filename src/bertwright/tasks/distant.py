"""Examples that stand on the disk: there may be more of them than memory holds.

Of each a few numbers are held. Its text is read when a step asks for it, and cut into pieces then.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from bertwright.tasks.answers import Answering
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import AnyExample, Examples
from bertwright.tasks.parts import Part
from bertwright.tasks.task import Task

AT_ONCE = 4096
"""Examples that are cut into pieces together where all are."""

HELD = 4096
"""The last values that were asked for are held: a step asks for its rows more than once."""

Value = TypeVar("Value")


class Distant(Sequence[AnyExample]):
    """The examples: as a sequence, of which each is read when it is asked for."""

    sum: str
    """A SHA-256 sum that tells them from others."""


class OnDemand(Sequence[Value], Generic[Value]):
    """So many values, each of which is made when it is asked for."""

    def __init__(self, number: int, make: Callable[[int], Value]) -> None:
        self._number, self._make = number, make
        self._held: OrderedDict[int, Value] = OrderedDict()

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self[number] for number in range(self._number)[index]]
        number = range(self._number)[index]
        if number not in self._held:
            self._held[number] = self._make(number)
            if len(self._held) > HELD:
                self._held.popitem(last=False)
        return self._held[number]


class DistantRows(OnDemand[TaskRow]):
    """The rows of distant examples.

    Attributes:
        lengths: (N,) int32, of the rows in pieces.
        first_answers: (N,) int32, how many outputs the rows of the same example before each have.
        num_answers: how many outputs each example has.
        cut: the numbers of the examples that lost pieces.
    """

    def __init__(self, answering: Answering, maker: RowMaker, examples: Distant) -> None:
        self._answering, self._maker, self._examples = answering, maker, examples
        owner, within = array("q"), array("i")
        lengths, first_answers, self.num_answers = array("i"), array("i"), array("i")
        self.cut: list[int] = []
        for number, rows in enumerate(self._by_example()):
            before = 0
            for place, row in enumerate(rows):
                owner.append(number)
                within.append(place)
                lengths.append(len(row.pieces))
                first_answers.append(before)
                before += answering.num_answers(row)
            self.num_answers.append(before)
            if any(row.num_cut for row in rows):
                self.cut.append(number)
        self._owner, self._within = np.array(owner), np.array(within)
        self.lengths: NDArray[np.int32] = np.array(lengths)
        self.first_answers: NDArray[np.int32] = np.array(first_answers)
        super().__init__(len(owner), self._row)

    def __iter__(self) -> Iterator[TaskRow]:
        return (row for rows in self._by_example() for row in rows)

    def _by_example(self) -> Iterator[list[TaskRow]]:
        """The rows of each example, some examples at once."""
        examples, first = iter(self._examples), 0
        while some := list(islice(examples, AT_ONCE)):
            found: list[list[TaskRow]] = [[] for _ in some]
            for row in self._answering.rows(self._maker, some):
                found[row.example].append(replace(row, example=first + row.example))
            yield from found
            first += len(some)

    def _row(self, number: int) -> TaskRow:
        owner = int(self._owner[number])
        rows = self._answering.rows(self._maker, [self._examples[owner]])
        return replace(rows[int(self._within[number])], example=owner)


@dataclass(frozen=True)
class DistantPart(Part):
    """A task that is learned from distant examples."""

    rows: DistantRows

    @property
    def lengths(self) -> Sequence[int]:
        return self.rows.lengths.tolist()

    def cut(self) -> list[int]:
        return self.rows.cut


def part_of(task: Task, train: Examples, dev: Examples, maker: RowMaker) -> Part:
    """As :meth:`Part.of`, wherever the examples are."""
    if not isinstance(train, Distant):
        return Part.of(task, train, dev, maker)
    assert not task.answer.together, "rows of distant examples are trained one by one"
    answering = task.answer.build(task.labels).fitted(train)
    rows = DistantRows(answering, maker, train)

    def targets(number: int) -> Sequence[float]:
        row = rows[number]
        return answering.targets([row], train[row.example])

    number = len(rows)
    items = OnDemand(number, lambda item: range(item, item + 1))
    return DistantPart(task, train, dev, answering, rows, items, OnDemand(number, targets))


def rows_of(answering: Answering, maker: RowMaker, examples: Examples) -> Sequence[TaskRow]:
    """The rows of examples, wherever these are."""
    if isinstance(examples, Distant):
        return DistantRows(answering, maker, examples)
    return answering.rows(maker, examples)
