"""Whether an answer hangs on a name that could be any other (Balasubramanian et al. 2020)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.classes import lacks_classes, parts_of
from bertwright.analysis.behaviour.exchanges import Exchange, changes, exchanges
from bertwright.analysis.behaviour.word_kinds import NAMES, THINGS, names_in, things_in
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.subject import Subject
from bertwright.significance import of_difference, of_ratio

Counts = NDArray[np.float64]

NAME, THING, LETTERS = "another name", "another common noun", "other letters"
"""What is exchanged: for one of its kind, or as the same name in small letters and in capitals."""

CHANGES, ONCE = "answer changes, ", "changes once or more, "
"""In the mean of all that is tried, and with one of all that is tried on a text."""

LEAD = "another name less another common noun"


class Names(Analysis):
    """In every text with a name, of a woman, a man, a city or a country, the first of them becomes
    another of its kind wherever it stands, ``alternatives`` times; in a sentence with its tree it
    is one that is tagged so. How often the class is another one then is held against what an
    exchange of a common noun does to it, and other letters of the same name. Names of one piece and
    of several are told apart, and those that stand in the texts and those that do not."""

    kind: Literal["names"] = "names"
    alternatives: int = Field(default=10, ge=1)
    number = "B33"
    group = "behaviour"
    question = "Does the answer to a text hang on a name that could be any other?"
    source = "Balasubramanian et al. 2020"

    def lacks(self, case: Case) -> str | None:
        if (lacking := lacks_classes(case)) is not None:
            return lacking
        return None if self._names(case) else "no text has a name that is known here"

    def run(self, case: Case) -> Found:
        names, most, seed = self._names(case), self.alternatives, case.seed
        whole = [parts_of(text) for text in case.texts]
        wanted = {
            NAME: names,
            THING: exchanges(case.texts, THINGS, things_in, most, seed),
            LETTERS: [own.as_letters() for own in names],
        }
        tried = {
            name: Tried(own, changes(case.subject, whole, own))
            for name, own in wanted.items()
            if own
        }
        findings = [found for name, own in tried.items() for found in own.findings(name, seed)]
        findings += by_name(case, tried[NAME])
        both = {own.text for own in names} & {own.text for own in wanted[THING]}
        if both:
            pair = (tried[name].of(both).counts() for name in (NAME, THING))
            findings.append(Finding.over_texts(LEAD, of_difference(*pair, seed=seed)))
        return Found(findings, {name: own.curve() for name, own in tried.items()})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        told = [
            concluded(
                "some answers change with nothing but a name",
                "85 % of sentences in coreference, for one name or more",
                stored.of_all(f"{ONCE}{NAME}"),
            )
        ]
        if any(found["metric"] == LEAD for found in stored.findings):
            told.append(
                concluded(
                    "another name changes an answer less often than another common noun",
                    "not measured: the sense of a name that could be any other",
                    stored.of_all(LEAD),
                    0.0,
                    "alike",
                    "below",
                )
            )
        return told

    def draw(self, stored: Stored, figure: Figure) -> None:
        by_number, by_kind = figure.subplots(1, 2)
        for name, curve in stored.arrays.items():
            by_number.plot(range(1, 1 + curve.shape[1]), curve.mean(0), "o-", label=name)
        by_number.set_xlabel("exchanges that are tried")
        by_number.set_ylabel("share of texts whose answer changes with one of them")
        by_number.set_ylim(bottom=0)
        by_number.legend()
        own = [f for f in stored.findings if f["metric"].startswith(CHANGES)][::-1]
        values = np.array([found["value"] for found in own])
        low, high = np.array([found.get("interval", [found["value"]] * 2) for found in own]).T
        names = [found["metric"].removeprefix(CHANGES) for found in own]
        by_kind.barh(names, values, xerr=[values - low, high - values])
        by_kind.set_xlabel("share of exchanges that change the answer")

    def _names(self, case: Case) -> list[Exchange]:
        return exchanges(case.texts, NAMES, names_in, self.alternatives, case.seed)


@dataclass(frozen=True)
class Tried:
    """Exchanges, and which words of each change the answer."""

    exchanges: Sequence[Exchange]
    changed: Sequence[NDArray[np.bool_]]

    def findings(self, name: str, seed: int) -> list[Finding]:
        """How often the answer changes."""
        blind = Baseline("a model that is blind to it", 0.0)
        often = of_ratio(*self.counts(), seed=seed)
        once = of_ratio(self.curve()[:, -1], seed=seed)
        return [
            Finding.over_texts(f"{CHANGES}{name}", often, baseline=blind),
            Finding.over_texts(f"{ONCE}{name}", once, baseline=blind),
        ]

    def of(self, texts: Collection[int]) -> "Tried":
        """Those of some texts."""
        pairs = zip(self.exchanges, self.changed, strict=True)
        own = [(exchange, told) for exchange, told in pairs if exchange.text in texts]
        return Tried([exchange for exchange, _ in own], [told for _, told in own])

    def counts(self, is_such: Callable[[str], bool] = lambda _: True) -> tuple[Counts, Counts]:
        """Of every text the words that change its answer, and all of them."""
        such = [np.array([is_such(other) for other in own.others]) for own in self.exchanges]
        parts = [(own & told).sum() for own, told in zip(such, self.changed, strict=True)]
        return np.array(parts, np.float64), np.array([own.sum() for own in such], np.float64)

    def curve(self) -> Counts:
        """Whether one of the first words of each text, so many as the column says, changes its
        answer: (texts, the most words that a text has)."""
        found = np.zeros((len(self.changed), max(map(len, self.changed))))
        for row, told in zip(found, self.changed, strict=True):
            row[: len(told)] = told
        return np.maximum.accumulate(found, 1)


def by_name(case: Case, tried: Tried) -> Iterator[Finding]:
    """How often the answer changes by what is put in the place of a name."""
    stands = {word.lower() for text in case.texts for word in text.words}
    is_such: Mapping[str, Callable[[str], bool]] = {
        "name of one piece": lambda name: num_pieces(case.subject, name) == 1,
        "name of several pieces": lambda name: num_pieces(case.subject, name) > 1,
        "name that stands in the texts": lambda name: name.lower() in stands,
        "name that stands in none": lambda name: name.lower() not in stands,
    }
    for which, such in is_such.items():
        parts, wholes = tried.counts(such)
        if wholes.any():
            often = of_ratio(parts, wholes, seed=case.seed)
            yield Finding.over_texts(f"{CHANGES}{which}", often)


def num_pieces(subject: Subject, word: str) -> int:
    """Of a word within a text."""
    pieces, first = subject.tokenizer.words(["a", word])
    return len(pieces) - first[1]
