"""What "not" changes in what is said to come (Ettinger 2020, section 7)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.cloze import Words, lacks_words, log_probabilities_in
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.significance import mcnemar, of_count

KINDS = {
    "bird": ("a robin", "an eagle"),
    "tool": ("a hammer", "a saw"),
    "fruit": ("an apple", "a pear"),
    "metal": ("iron", "copper"),
    "fish": ("a salmon", "a shark"),
    "building": ("a church", "a castle"),
    "vegetable": ("a carrot", "a potato"),
    "vehicle": ("a truck", "a bus"),
    "flower": ("a rose", "a tulip"),
    "weapon": ("a sword", "a gun"),
    "tree": ("an oak", "a pine"),
    "game": ("chess", "football"),
}
"""What there is of each kind; every kind is the right one as often as the wrong one."""


class Negation(Analysis):
    """ "A robin is a ...": is the kind that it is of likelier than one that it is not? And "A robin
    is not a ...": is it then less likely, as what is true asks? Of 24 things of 12 kinds."""

    kind: Literal["negation"] = "negation"
    number = "B28"
    group = "behaviour"
    question = "Does a model hear that something is not so?"
    source = "Ettinger 2020"

    def lacks(self, case: Case) -> str | None:
        return lacks_words(case)

    def run(self, case: Case) -> Found:
        own = items()
        likely = {
            (negated, which): log_probabilities_in(
                case.subject,
                [item.sentence(negated, which) for item in own],
                [item.asked(negated) for item in own],
            )
            for negated in (False, True)
            for which in ("kind", "other")
        }
        affirmed = likely[False, "kind"] > likely[False, "other"]
        negated = likely[True, "other"] > likely[True, "kind"]
        half = Baseline("a coin", 0.5)
        shares = [of_count(int(of.sum()), len(of)) for of in (affirmed, negated)]
        findings = [
            Finding.over_texts("true completions preferred, affirmed", shares[0], baseline=half),
            Finding.over_texts("true completions preferred, negated", shares[1], baseline=half),
            Finding(
                "affirmed less negated",
                shares[0].value - shares[1].value,
                chance=mcnemar(affirmed.tolist(), negated.tolist()),
            ),
        ]
        leads = [
            likely[False, "kind"] - likely[False, "other"],
            likely[True, "other"] - likely[True, "kind"],
        ]
        return Found(findings, {"leads": np.stack(leads)})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "where something is affirmed the true completion is preferred",
                "100 % of BERT-base",
                stored.of_all("true completions preferred, affirmed"),
            ),
            concluded(
                "where it is negated the false one is preferred still",
                "the true one in 0 % of BERT-base",
                stored.of_all("true completions preferred, negated"),
                direction="below",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        leads = stored.arrays["leads"]
        places = np.arange(leads.shape[1])
        axes.vlines(places, *leads, color="0.8")
        for lead, name in zip(leads, ("affirmed", "negated"), strict=True):
            axes.scatter(places, lead, label=name)
        axes.axhline(0, linestyle=":")
        axes.set_xticks(places, [item.thing for item in items()], rotation=90)
        axes.set_ylabel("nats by which what is true is ahead")
        axes.legend()


@dataclass(frozen=True)
class Item:
    """A thing, with its article, the kind that it is of, and one that it is not of."""

    thing: str
    kind: str
    other: str

    def sentence(self, negated: bool, which: str) -> Words:
        """As words."""
        between = ("is", "not", "a") if negated else ("is", "a")
        said = self.kind if which == "kind" else self.other
        return (*self.thing.split(), *between, said, ".")

    def asked(self, negated: bool) -> int:
        """Where the kind stands."""
        return len(self.thing.split()) + (3 if negated else 2)


def items() -> list[Item]:
    """All of them."""
    kinds = list(KINDS)
    return [
        Item(thing, kind, kinds[(number + 5 + place) % len(kinds)])
        for number, kind in enumerate(kinds)
        for place, thing in enumerate(KINDS[kind])
    ]
