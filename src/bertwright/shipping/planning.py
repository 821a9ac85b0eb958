"""What a model becomes, so that it keeps to a goal and loses as little as can be: a form alone
where that is enough, and else the shape that loses least before it is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bertwright.compression.method import Method
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.randomness import sample
from bertwright.shipping.candidates import Candidate, Candidates
from bertwright.shipping.forms import FORMS, PLAIN, Form
from bertwright.shipping.goal import Goal
from bertwright.shipping.shapes import (
    SHARES,
    Shape,
    left_of,
    loss_of,
    require_taught_as,
    whole,
)
from bertwright.tasks.answers import Answer
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples

MOST_JUDGED = 2048
"""Examples by which forms are compared."""


def judged(answer: Answer, examples: Examples) -> Examples:
    """Some of them, from all over; of what is ranked whole groups, in which the best is looked
    for."""
    groups = [answer.group(each) for each in examples]
    names = [name for name in dict.fromkeys(groups) if name is not None]
    if not names:
        return sample(examples, MOST_JUDGED)
    chosen = set(sample(names, max(1, MOST_JUDGED * len(names) // len(groups))))
    return [each for each, group in zip(examples, groups, strict=True) if group in chosen]


@dataclass(frozen=True)
class Plan:
    """What was ``chosen``, and the ``model`` of its shape before it learns, None where nothing has
    to go and nothing is learned."""

    chosen: Candidate
    model: FineTuned | None


class Planner:
    """What looks for a plan; ``train`` and ``dev`` are examples of the task."""

    def __init__(
        self,
        model: FineTuned,
        goal: Goal,
        method: Method,
        measured: Candidates,
        train: Examples,
        dev: Examples,
        say: Callable[[str], None],
    ) -> None:
        self._model, self._goal, self._method = model, goal, method
        self._measured, self._train, self._dev, self._say = measured, train, dev, say
        self._whole = whole(model)
        self._lost: dict[Form, float] = {PLAIN: 0.0}
        self._losses: dict[Shape, float] = {}

    def plan(self) -> Plan:
        """The best that keeps to the goal, as far as that is seen before anything is trained.

        Errors: UserError where nothing is small and fast enough.
        """
        chosen = self._measured.at(self._whole, PLAIN)
        if self._keeps(chosen) or (chosen := self._kept(self._whole)):
            return Plan(chosen, None)
        found = self._largest()
        if not found:
            raise self._nothing()
        began = {own.shape: left_of(self._model, own.shape, self._train) for own in found}
        for shape, small in began.items():
            self._losses[shape] = loss_of(small, self._dev)
            self._say(f"{shape.name}: {self._losses[shape]:.3f} nats before it is trained")
        chosen = min(found, key=lambda own: self._losses[own.shape])
        return Plan(chosen, began[chosen.shape])

    def seen(self) -> dict[str, Any]:
        """By name, the points that forms lose (``lost_by_form``), and the losses of shapes before
        they are trained, in nats (``loss_by_shape``)."""
        return {
            "lost_by_form": {form.name: lost for form, lost in self._lost.items()},
            "loss_by_shape": {shape.name: loss for shape, loss in self._losses.items()},
        }

    @cached_property
    def _forms(self) -> list[Form]:
        """Those in which the model as it is loses no more than it may, what loses least first."""
        plain = self._score(PLAIN)
        for form in FORMS[1:]:
            if form.trimmed and self._goal.bytes is None:
                continue
            try:
                lost = 100 * (plain - self._score(form))
            except UserError as error:
                self._say(f"{form.name}: left out ({error})")
                continue
            self._lost[form] = lost
            self._say(f"{form.name}: {lost:+.2f} points lost")
        allowed = [form for form, lost in self._lost.items() if self._goal.loses(lost)]
        return sorted(allowed, key=lambda form: max(self._lost[form], 0))

    def _score(self, form: Form) -> float:
        """Of the model as it is."""
        self._measured.at(self._whole, form)
        model = load(self._measured.folder(self._whole, form))
        return evaluate(model, judged(self._model.task.answer, self._dev))["score"]

    def _largest(self) -> list[Candidate]:
        """Of each share of heads and units the largest number of layers that keeps to the goal, if
        it is larger than with a larger share."""
        found: list[Candidate] = []
        possible = [shape for shape in self._smaller() if self._can_be(shape)]
        if not possible or self._kept(possible[-1]) is None:
            return found
        for share in SHARES:
            fewest = found[-1].shape.layers + 1 if found else 1
            own = [each for each in possible if each.share == share and each.layers >= fewest]
            found += self._deepest(own)
        return found

    def _deepest(self, shapes: Sequence[Shape]) -> list[Candidate]:
        """Of shapes with fewer and fewer layers the first that keeps to the goal, or none; by
        halving, since what fewer layers cannot keep more cannot either."""
        best: list[Candidate] = []
        low, high = 0, len(shapes)
        while low < high:
            middle = (low + high) // 2
            kept = self._kept(shapes[middle])
            if kept is None:
                low = middle + 1
            else:
                best, high = [kept], middle
        return best

    def _smaller(self) -> list[Shape]:
        """Shapes that are smaller than the whole, the smallest last."""
        layers = range(self._whole.layers, 0, -1)
        shapes = [Shape(number, share) for share in SHARES for number in layers]
        return [shape for shape in shapes if shape != self._whole]

    def _can_be(self, shape: Shape) -> bool:
        try:
            require_taught_as(shape, self._model, self._method)
        except UserError:
            return False
        return True

    def _kept(self, shape: Shape) -> Candidate | None:
        """A shape in the form that loses least of those with which it is small and fast enough."""
        for form in self._forms:
            if self._keeps(own := self._measured.at(shape, form)):
                return own
        return None

    def _keeps(self, own: Candidate) -> bool:
        return self._goal.keeps(own.bytes, own.milliseconds)

    def _nothing(self) -> UserError:
        known = self._measured.known
        smallest = min(known, key=lambda own: own.bytes)
        told = [f"the smallest ({smallest.name}) has {smallest.told}"]
        timed = {own.name: own.milliseconds for own in known if own.milliseconds is not None}
        if timed:
            fastest = min(timed, key=timed.__getitem__)
            told.append(f"the fastest ({fastest}) takes {timed[fastest]:.2f} ms")
        told += [
            f"{form.name} would lose {lost:.2f} points"
            for form, lost in self._lost.items()
            if form not in self._forms
        ]
        return UserError(
            f"nothing keeps to the goal: {'; '.join(told)}: ask for less, or without --goal for a "
            f"--method of few bits or a smaller --student"
        )
