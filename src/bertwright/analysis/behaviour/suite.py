"""Tests of what a classifier is expected to do, in the three forms of CheckList (Ribeiro et al.
2020): texts that need no thought, texts that are changed where nothing should change, and texts
that are changed where the answer must not move to one side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bertwright.analysis.behaviour.classes import Words, classified, likeliest
from bertwright.analysis.findings import Baseline, Finding
from bertwright.analysis.subject import Subject
from bertwright.axes import Settings
from bertwright.randomness import key
from bertwright.significance import of_count

Form = Literal["minimum functionality", "invariance", "direction"]

Chances = Mapping[str, float]

TOLERANCE = 0.1
"""What the probability of a class may fall by where it should not fall."""

OTHERS = "by the answers to other texts"


class Item(Settings):
    """One test.

    Attributes:
        text: or a pair of them.
        before: what it was made from, for all forms but the first.
        label: the class that is right; of a direction that which must not become less likely.
    """

    text: str | tuple[str, str]
    before: str | tuple[str, str] | None = None
    label: str | None = None

    @property
    def start(self) -> str | tuple[str, str]:
        """What it was made from, itself where that is nothing else."""
        return self.text if self.before is None else self.before


class Suite(Settings):
    """Tests of one thing that a model should be capable of."""

    name: str
    capability: str
    form: Form
    items: tuple[Item, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for item in self.items:
            if self.form != "minimum functionality" and item.before is None:
                raise ValueError(f"{self.name}: {item.text!r} needs the text before it was changed")
            if self.form != "invariance" and item.label is None:
                raise ValueError(f"{self.name}: {item.text!r} needs a label")
        return self

    def failed(self, before: Sequence[Chances], after: Sequence[Chances]) -> NDArray[np.bool_]:
        """Which of the items, by what the model says of their texts before and after."""
        asked = zip(self.items, before, after, strict=True)
        return np.array([FAILS[self.form](item.label or "", old, new) for item, old, new in asked])


@dataclass(frozen=True)
class Tested:
    """Which items of a suite fail (N,), and which would by the answers to others of them."""

    suite: Suite
    failed: NDArray[np.bool_]
    by_others: NDArray[np.bool_]

    def finding(self, metric: str) -> Finding:
        """The share of these; what kind of tests they are, and the first that is failed."""
        found = of_count(int(self.failed.sum()), len(self.failed))
        baseline = Baseline(OTHERS, float(self.by_others.mean()))
        first = [f"fails: {self.suite.items[n].text!r}" for n in np.flatnonzero(self.failed)[:1]]
        note = "; ".join([f"{self.suite.form}, {self.suite.capability}", *first])
        return replace(Finding.over_texts(metric, found, baseline=baseline), note=note)


def tested(subject: Subject, suite: Suite, seed: int) -> Tested:
    """What the model makes of a suite; every item has the answer to one other, too."""
    after = classified(subject, [words_of(item.text) for item in suite.items])
    before = classified(subject, [words_of(item.start) for item in suite.items])
    order = np.random.default_rng(key(seed, suite.name)).permutation(len(after))
    other = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    others = [after[other[n]] for n in range(len(after))]
    return Tested(suite, suite.failed(before, after), suite.failed(before, others))


def words_of(text: str | tuple[str, str]) -> list[Words]:
    """The words of each part."""
    return [part.split(" ") for part in ([text] if isinstance(text, str) else text)]


def text_of(parts: Sequence[Words]) -> str | tuple[str, str]:
    """A text, or a pair, of the words of its parts."""
    first, *others = [" ".join(part) for part in parts]
    return (first, others[0]) if others else first


def _names_another(label: str, before: Chances, after: Chances) -> bool:
    return likeliest([after]) != [label]


def _changes(label: str, before: Chances, after: Chances) -> bool:
    return likeliest([before]) != likeliest([after])


def _falls(label: str, before: Chances, after: Chances) -> bool:
    return before[label] - after[label] > TOLERANCE


FAILS: dict[Form, Callable[[str, Chances, Chances], bool]] = {
    "minimum functionality": _names_another,
    "invariance": _changes,
    "direction": _falls,
}
