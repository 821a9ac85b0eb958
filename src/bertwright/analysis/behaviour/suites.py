"""What a classifier is expected to do, tested thing by thing (Ribeiro et al. 2020)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.classes import lacks_classes, parts_of
from bertwright.analysis.behaviour.sentiment_suites import (
    PLAIN,
    Poles,
    poles_of,
    sentiment_suites,
)
from bertwright.analysis.behaviour.suite import OTHERS, Suite, Tested, tested
from bertwright.analysis.behaviour.unchanged_suites import SWAPPED, unchanged_suites
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.pictures import errors
from bertwright.analysis.subject import Subject
from bertwright.axes import did_you_mean
from bertwright.significance import holm, label_permutations, of_ratio
from bertwright.tasks.fine_tuned import FineTuned

SUITE, CAPABILITY, HARDER = "fails, ", "fails all of ", "fails more than plain words, "

PUBLISHED = {
    "negation": ("what is not good", "in some of its forms nearly all are failed"),
    "time": ("what was and what is", "11 % to 42 % fail"),
    "whose opinion": ("what others think", "30 % to 68 % fail"),
}
"""What is harder than plain words, by capability."""


class Suites(Analysis):
    """How often a model fails suites of ``items`` tests each: sentences whose class is plain, texts
    whose class should not change with a slip of the pen or another name, and texts of which a class
    should not become less likely with what is said behind them. The first and the last are for
    models that tell praise from blame, by the labels that are named ``good`` and ``bad`` here or
    say so by themselves. Suites of one's ``own`` are added as they are. Each share is held against
    that by the answers to other texts of the suite; what is hard, against plain words."""

    kind: Literal["suites"] = "suites"
    items: int = Field(default=100, ge=1)
    good: str | None = None
    bad: str | None = None
    own: tuple[Suite, ...] = ()
    number = "B34"
    group = "behaviour"
    question = "Does a classifier do what anyone would expect of it?"
    source = "Ribeiro et al. 2020"

    def lacks(self, case: Case) -> str | None:
        if (lacking := lacks_classes(case)) is not None:
            return lacking
        known = _labels(case.subject)
        told = {own for own in (self.good, self.bad) if own is not None}
        told |= {item.label for suite in self.own for item in suite.items if item.label is not None}
        for label in sorted(told - set(known)):
            return f"it names no class {label!r}{did_you_mean(label, known)}"
        return None if self._suites(case) else "its texts have no words that could be changed"

    def run(self, case: Case) -> Found:
        told = [tested(case.subject, suite, case.seed) for suite in self._suites(case)]
        findings = [own.finding(f"{SUITE}{own.suite.name}") for own in told]
        findings += [*_of_several(told, case.seed), *_harder(told, case.seed)]
        return Found(findings, {own.suite.name: own.failed for own in told})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        found = {own["metric"]: own for own in stored.findings}
        told: list[Conclusion] = []
        if (plain := found.get(f"{SUITE}{PLAIN.name}")) is not None:
            claim = "plain words of praise and blame are told apart"
            told.append(concluded(claim, "few such tests are failed", plain, direction="below"))
        for capability, (what, published) in PUBLISHED.items():
            if (own := found.get(f"{HARDER}{capability}")) is not None:
                claim = f"{what} is harder than plain words"
                harder = concluded(claim, published, own, 0.0, "plain words")
                told.append(replace(harder, chance=own["adjusted"]))
        if (swapped := found.get(f"{SUITE}{SWAPPED}")) is not None:
            claim = "two letters swapped change some answers"
            told.append(concluded(claim, "4 % to 10 % of them", swapped, 0.0, "none"))
        return told

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = [found for found in stored.findings if "baseline" in found][::-1]
        places = np.arange(len(own))
        values = [found["value"] for found in own]
        whole = [found["metric"].startswith(CAPABILITY) for found in own]
        names = [found["metric"].removeprefix(SUITE).removeprefix("fails ") for found in own]
        colours = ["C1" if each else "C0" for each in whole]
        axes.barh(places, values, xerr=errors(own), color=colours)
        chances = [found["baseline"]["value"] for found in own]
        axes.scatter(chances, places, marker="|", color="black", zorder=3, label=OTHERS)
        axes.set_yticks(places, names)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of tests that are failed")
        axes.legend()

    def _suites(self, case: Case) -> list[Suite]:
        whole = [parts_of(text) for text in case.texts]
        poles = self._poles(case.subject)
        about = [] if poles is None else sentiment_suites(poles, whole, self.items, case.seed)
        return [*about, *unchanged_suites(case.texts, whole, self.items, case.seed), *self.own]

    def _poles(self, subject: Subject) -> Poles | None:
        model = subject.text_model
        assert isinstance(model, FineTuned)
        if self.good is not None and self.bad is not None:
            return Poles(self.good, self.bad)
        return poles_of(model.task.name, model.task.labels)


def _of_several(told: Sequence[Tested], seed: int) -> Iterator[Finding]:
    """The share of each capability that has several suites, over what their items were made
    from."""
    names = Counter(own.suite.capability for own in told)
    for name in (name for name, number in names.items() if number > 1):
        own = [each for each in told if each.suite.capability == name]
        made_from = [str(item.start) for each in own for item in each.suite.items]
        _, unit = np.unique(made_from, return_inverse=True)
        failed, by_others = (
            np.concatenate(of) for of in zip(*((e.failed, e.by_others) for e in own), strict=True)
        )
        share = of_ratio(np.bincount(unit, failed), np.bincount(unit), seed=seed)
        baseline = Baseline(OTHERS, float(by_others.mean()))
        yield Finding.over_texts(f"{CAPABILITY}{name}", share, baseline=baseline)


def _harder(told: Sequence[Tested], seed: int) -> list[Finding]:
    """By how much more of what is known to be hard is failed than of plain words, where the model
    is asked for these."""
    plain = next((own.failed for own in told if own.suite.name == PLAIN.name), None)
    if plain is None:
        return []
    hard = {
        capability: np.concatenate([own.failed for own in of])
        for capability in PUBLISHED
        if (of := [own for own in told if own.suite.capability == capability])
    }
    chances = [label_permutations(own, plain, seed=seed) for own in hard.values()]
    each = zip(hard.items(), chances, holm(chances).tolist(), strict=True)
    return [
        Finding(
            f"{HARDER}{capability}",
            float(own.mean() - plain.mean()),
            chance=chance,
            adjusted=adjusted,
            family=len(hard),
        )
        for (capability, own), chance, adjusted in each
    ]


def _labels(subject: Subject) -> Sequence[str]:
    model = subject.text_model
    assert isinstance(model, FineTuned)
    return model.task.labels
