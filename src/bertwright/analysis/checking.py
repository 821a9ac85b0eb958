"""Whether every analysis finds what it should: what was planted, and what a toy model that is
trained here has learned."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.findings import read_found
from bertwright.analysis.planted.expectations import LEARNED, PLANTED
from bertwright.analysis.planted.grammar import texts, trees
from bertwright.analysis.planted.toy import backwards, train_toy, train_translator, tuned
from bertwright.analysis.running import analyse
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.machine.process import one_thread
from bertwright.tasks.formats.examples import Example

STEPS, QUICK_STEPS = 1200, 100
"""Of the toy's training; after few of them nothing is asked of what it has learned."""

LONGEST_SECONDS = 120.0
"""For one analysis of the toy."""


@dataclass(frozen=True)
class Checked:
    """What became of an analysis; ``wrong`` is what was not as it should be."""

    number: str
    name: str
    seconds: float
    expected: int
    wrong: Sequence[str]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        told = {"id": self.number, "name": self.name, "ok": self.ok, "seconds": self.seconds}
        return told if self.ok else {**told, "wrong": list(self.wrong)}

    def __str__(self) -> str:
        told = f"{self.expected} expectations hold" if self.ok else f"MISS: {'; '.join(self.wrong)}"
        return f"{self.number:>4}  {self.name:22} {self.seconds:6.1f} s  {told}"


def check_all(
    analyses: Sequence[Analysis], quick: bool, say: Callable[[str], None]
) -> Iterator[Checked]:
    """Every analysis, one after the other, behind the training of the toy."""
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        cases = toy_cases(Path(folder), QUICK_STEPS if quick else STEPS)
        say(f"a toy model was trained: {time.monotonic() - began:.0f} s")
        for analysis in analyses:
            with one_thread():
                checked = check(analysis, cases, quick, Path(folder))
            yield checked


def toy_cases(folder: Path, steps: int) -> list[Case]:
    """A toy model with sentences, with long texts, and fine-tuned with sentences; and one that
    translates, with pairs."""
    toy = train_toy(folder, steps)
    sentences = trees(60, seed=1)
    long = [
        Example(" ".join(word for tree in sentences[n : n + 12] for word in tree.words))
        for n in range(0, 60, 12)
    ]
    fine_tuned = Subject("tuned toy", tuned(toy))
    translator = train_translator(folder, steps)
    pairs = [Example(text, backwards(text)) for text in texts(24, seed=1)]
    return [
        Case(toy, read_texts(toy, sentences), cache=folder / "states"),
        Case(toy, read_texts(toy, long)),
        Case(fine_tuned, read_texts(fine_tuned, sentences), cache=folder / "states", other=toy),
        Case(translator, read_texts(translator, pairs)),
    ]


def check(analysis: Analysis, cases: Sequence[Case], quick: bool, folder: Path) -> Checked:
    """One analysis: the first case that it can be asked of, then what was planted for it."""
    kind, began, wrong = analysis.own_kind(), time.monotonic(), list[str]()
    case = next((case for case in cases if analysis.lacks(case) is None), None)
    expected = [] if kind not in PLANTED else list(PLANTED[kind]())
    planted = time.monotonic() - began
    if case is None:
        wrong.append(f"says nothing of the toy: {analysis.lacks(cases[0])}")
    else:
        analyse(case, [analysis], folder / "found", lambda line: None)
        stored = read_found(folder / "found", kind)
        if not all(np.isfinite(each["value"]) for each in stored.findings):
            wrong.append("a finding is no number")
        if kind in LEARNED and not quick:
            expected += LEARNED[kind](stored)
    seconds = time.monotonic() - began
    if seconds - planted > LONGEST_SECONDS:
        wrong.append(f"took {seconds - planted:.0f} s of the toy")
    wrong += [str(each) for each in expected if not each.holds]
    return Checked(analysis.number, kind, round(seconds, 1), len(expected), wrong)
