"""Behavioural tests of a classifier in the three forms of CheckList.

The forms are minimum functionality, invariance to a change, and the direction of a change (Ribeiro
et al. 2020).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bertwright.analysis.behaviour.classification import (
    PartWords,
    class_probabilities,
    most_likely_classes,
)
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisFinding, BaselineValue, interval_finding
from bertwright.core.config import Settings
from bertwright.core.rng import stream_key
from bertwright.core.significance import binomial_interval

SuiteForm = Literal["minimum functionality", "invariance", "direction"]

ClassProbabilities = Mapping[str, float]

TOLERANCE = 0.1
"""Tolerated drop of the class probability in directional tests."""

SHUFFLED_BASELINE = "by the predictions for other texts"


class SuiteItem(Settings):
    """One test.

    Attributes:
        text: A text or a pair of texts.
        original_text: The text before the change; None in minimum functionality tests.
        label: The correct class; in directional tests, the class that must not become less likely.
    """

    text: str | tuple[str, str]
    original_text: str | tuple[str, str] | None = None
    label: str | None = None

    @property
    def original(self) -> str | tuple[str, str]:
        """The original text, or the text itself if it is unchanged."""
        return self.text if self.original_text is None else self.original_text


class BehaviouralSuite(Settings):
    """A suite of tests of one capability."""

    name: str
    capability: str
    form: SuiteForm
    items: tuple[SuiteItem, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        for item in self.items:
            if self.form != "minimum functionality" and item.original_text is None:
                raise ValueError(f"{self.name}: {item.text!r} needs its original_text")
            if self.form != "invariance" and item.label is None:
                raise ValueError(f"{self.name}: {item.text!r} needs a label")
        return self

    def failures(
        self, before: Sequence[ClassProbabilities], after: Sequence[ClassProbabilities]
    ) -> NDArray[np.bool_]:
        """Return which items fail, given the probabilities of the original and changed texts."""
        if self.form == "direction":
            triples = zip((item.label or "" for item in self.items), before, after, strict=True)
            return np.array([old[label] - new[label] > TOLERANCE for label, old, new in triples])
        expected = (
            most_likely_classes(before)
            if self.form == "invariance"
            else [item.label for item in self.items]
        )
        predicted = most_likely_classes(after)
        return np.array([a != b for a, b in zip(expected, predicted, strict=True)])


@dataclass(frozen=True)
class SuiteResult:
    """Which items of a suite fail (N,), and which would with predictions of other items."""

    suite: BehaviouralSuite
    has_failed: NDArray[np.bool_]
    has_failed_shuffled: NDArray[np.bool_]

    def finding(self, metric: str) -> AnalysisFinding:
        """Return the failure rate; its note has the form, the capability and the first failure."""
        interval = binomial_interval(int(self.has_failed.sum()), len(self.has_failed))
        baseline = BaselineValue(SHUFFLED_BASELINE, float(self.has_failed_shuffled.mean()))
        first = [
            f"fails: {self.suite.items[n].text!r}" for n in np.flatnonzero(self.has_failed)[:1]
        ]
        note = "; ".join([f"{self.suite.form}, {self.suite.capability}", *first])
        return interval_finding(metric, interval, baseline=baseline, note=note)


def run_suite(model: AnalysedModel, suite: BehaviouralSuite, seed: int) -> SuiteResult:
    """Run a suite; for the baseline, also pair every item with another item's prediction."""
    after = class_probabilities(model, [split_text(item.text) for item in suite.items])
    before = class_probabilities(model, [split_text(item.original) for item in suite.items])
    order = np.random.default_rng(stream_key(seed, suite.name)).permutation(len(after))
    other = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    others = [after[other[n]] for n in range(len(after))]
    return SuiteResult(suite, suite.failures(before, after), suite.failures(before, others))


def split_text(text: str | tuple[str, str]) -> list[PartWords]:
    """Split a text or each text of a pair at spaces."""
    return [part.split(" ") for part in ([text] if isinstance(text, str) else text)]


def join_parts(parts: Sequence[PartWords]) -> str | tuple[str, str]:
    """Join parts to a text or a pair."""
    first, *others = [" ".join(part) for part in parts]
    return (first, others[0]) if others else first
