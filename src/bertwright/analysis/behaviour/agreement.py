"""Which of two sentences is likelier: pairs that differ in one word (Marvin and Linzen 2018;
Goldberg 2019; Warstadt et al. 2020)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.cloze import Words, lacks_words, log_probabilities_in
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.randomness import key
from bertwright.significance import of_difference, of_ratio

SINGULAR = ("boy", "girl", "teacher", "farmer", "doctor", "driver", "player", "writer")
PLURAL = ("boys", "girls", "teachers", "farmers", "doctors", "drivers", "players", "writers")
PREPOSITIONS = ("near", "behind", "beside", "with")
SEEING = (("likes", "like"), ("knows", "know"), ("sees", "see"), ("helps", "help"))
DOING = (("is", "are"), ("was", "were"), ("has", "have"))
ENDS = {"is": "here", "was": "there", "has": "time"}


class Agreement(Analysis):
    """Whether a verb agrees with its subject: the right form against the wrong one, in simple
    sentences, behind a preposition with a noun of the other number, behind a clause, and inside
    one. Of each ``pairs`` are drawn from a grammar of our own. A causal model is asked for the verb
    by what stands before it, a masked one by both sides."""

    kind: Literal["agreement"] = "agreement"
    pairs: int = Field(default=200, ge=1)
    number = "B27"
    group = "behaviour"
    question = "Does a verb agree with its subject, whatever stands between?"
    source = "Marvin and Linzen 2018; Goldberg 2019"

    def lacks(self, case: Case) -> str | None:
        return lacks_words(case)

    def run(self, case: Case) -> Found:
        findings: list[Finding] = []
        leads: dict[str, np.ndarray] = {}
        for name, paradigm in PARADIGMS.items():
            generator = np.random.default_rng(key(case.seed, name))
            own = [drawn(paradigm, generator) for _ in range(self.pairs)]
            good, bad = (
                log_probabilities_in(
                    case.subject, [pair.sentence(form) for pair in own], [p.verb for p in own]
                )
                for form in (True, False)
            )
            leads[name] = good - bad
            right = np.where(leads[name] == 0, 0.5, leads[name] > 0)
            share = of_ratio(right, seed=case.seed)
            findings.append(Finding.over_texts(name, share, baseline=Baseline("a coin", 0.5)))
        (simple, far), ones = (leads[n] > 0 for n in ("simple", "attractor")), np.ones(self.pairs)
        lost = of_difference((simple, ones), (far, ones), seed=case.seed)
        findings.append(Finding.over_texts("simple less attractor", lost))
        return Found(findings, leads)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "a verb agrees with its subject in simple sentences",
                "100 % of BERT-base",
                stored.of_all("simple"),
            ),
            concluded(
                "it agrees past a noun of the other number",
                "85 % to 97 % of BERT-base, by what stands between",
                stored.of_all("attractor"),
            ),
            concluded(
                "it does so less often than in simple sentences",
                "97 % to 100 % of BERT-base",
                stored.of_all("simple less attractor"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = [found for found in stored.findings if "baseline" in found]
        values = np.array([found["value"] for found in own])
        low, high = np.array([found.get("interval", [found["value"]] * 2) for found in own]).T
        axes.bar([found["metric"] for found in own], values, yerr=[values - low, high - values])
        axes.axhline(0.5, linestyle=":")
        axes.set_ylabel("share of right forms")


@dataclass(frozen=True)
class Pair:
    """A sentence, where its verb stands, and the form that is wrong there."""

    words: Words
    verb: int
    wrong: str

    def sentence(self, right: bool) -> Words:
        """In either form."""
        said = self.words[self.verb] if right else self.wrong
        return (*self.words[: self.verb], said, *self.words[self.verb + 1 :])


@dataclass(frozen=True)
class Drawn:
    """What a paradigm is made of: the subject and another noun of the other number, the verb of the
    sentence in both forms and what ends it, that of a clause, a preposition."""

    subject: str
    other: str
    verb: str
    wrong: str
    end: str
    seen: str
    seen_wrong: str
    preposition: str


def simple(own: Drawn) -> Pair:
    """The boy is here."""
    return Pair(("the", own.subject, own.verb, own.end, "."), 2, own.wrong)


def attractor(own: Drawn) -> Pair:
    """The boy near the girls is here."""
    words = ("the", own.subject, own.preposition, "the", own.other, own.verb, own.end, ".")
    return Pair(words, 5, own.wrong)


def behind_clause(own: Drawn) -> Pair:
    """The boy who likes the girls is here."""
    words = ("the", own.subject, "who", own.seen, "the", own.other, own.verb, own.end, ".")
    return Pair(words, 6, own.wrong)


def inside_clause(own: Drawn) -> Pair:
    """The girls whom the boy likes left early."""
    words = ("the", own.other, "whom", "the", own.subject, own.seen, "left", "early", ".")
    return Pair(words, 5, own.seen_wrong)


PARADIGMS = {
    "simple": simple,
    "attractor": attractor,
    "behind a clause": behind_clause,
    "inside a clause": inside_clause,
}


def drawn(paradigm: Callable[[Drawn], Pair], generator: np.random.Generator) -> Pair:
    """A pair with words that are drawn, one or many alike often."""
    is_plural = int(generator.integers(2))
    nouns = (SINGULAR, PLURAL)
    verb = DOING[generator.integers(len(DOING))]
    seen = SEEING[generator.integers(len(SEEING))]
    return paradigm(
        Drawn(
            str(generator.choice(nouns[is_plural])),
            str(generator.choice(nouns[1 - is_plural])),
            verb[is_plural],
            verb[1 - is_plural],
            ENDS[verb[0]],
            seen[is_plural],
            seen[1 - is_plural],
            str(generator.choice(PREPOSITIONS)),
        )
    )
