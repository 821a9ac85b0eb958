"""What a model knows of the world, asked by sentences with a word left out (Petroni et al. 2019);
and whether it says the same of what is not so (Kassner and Schütze 2020)."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.cloze import Words, lacks_words, log_probabilities_in
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.subject import Subject
from bertwright.significance import of_difference, of_ratio


@dataclass(frozen=True)
class Relation:
    """What is said of two things, ``X`` the one that is given and ``Y`` the one that is asked for;
    the same with "not"; and pairs of which it is so, with a colon between."""

    name: str
    said: str
    denied: str
    pairs: str

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is given, and what is right."""
        return [(given, right) for given, right in (own.split(":") for own in self.pairs.split())]

    @property
    def answers(self) -> list[str]:
        """Between which one chooses."""
        return sorted({right for _, right in self.facts})

    def sentence(self, given: str, answer: str, denied: bool) -> Words:
        """As words."""
        filled = {"X": given, "Y": answer}
        words = (self.denied if denied else self.said).split()
        return tuple(filled.get(word, word) for word in words)

    def asked(self, denied: bool) -> int:
        """Where the answer stands."""
        return (self.denied if denied else self.said).split().index("Y")


RELATIONS = (
    Relation(
        "capital",
        "X is the capital of Y .",
        "X is not the capital of Y .",
        "Paris:France Berlin:Germany Madrid:Spain Rome:Italy London:England Moscow:Russia "
        "Tokyo:Japan Cairo:Egypt Athens:Greece Vienna:Austria Lisbon:Portugal Dublin:Ireland "
        "Warsaw:Poland Stockholm:Sweden Oslo:Norway",
    ),
    Relation(
        "language",
        "people in X speak Y .",
        "people in X do not speak Y .",
        "France:French Germany:German Spain:Spanish Italy:Italian England:English Russia:Russian "
        "Japan:Japanese China:Chinese Portugal:Portuguese Brazil:Portuguese Mexico:Spanish "
        "Austria:German Greece:Greek Poland:Polish Australia:English",
    ),
    Relation(
        "colour",
        "the colour of X is Y .",
        "the colour of X is not Y .",
        "snow:white milk:white salt:white grass:green leaves:green blood:red fire:red roses:red "
        "coal:black night:black sky:blue sea:blue gold:yellow corn:yellow",
    ),
    Relation(
        "opposite",
        "the opposite of X is Y .",
        "the opposite of X is not Y .",
        "hot:cold big:small high:low old:young rich:poor good:bad long:short black:white "
        "light:dark strong:weak wet:dry early:late love:hate war:peace",
    ),
    Relation(
        "month",
        "the month after X is Y .",
        "the month after X is not Y .",
        "January:February February:March March:April April:May May:June June:July July:August "
        "August:September September:October October:November November:December December:January",
    ),
    Relation(
        "work",
        "the work of a X is to Y .",
        "the work of a X is not to Y .",
        "teacher:teach painter:paint writer:write singer:sing baker:bake dancer:dance farmer:farm "
        "driver:drive builder:build hunter:hunt",
    ),
    Relation(
        "stuff",
        "X is made of Y .",
        "X is not made of Y .",
        "bread:flour wine:grapes glass:sand paper:wood furniture:wood cheese:milk butter:milk "
        "steel:iron jewelry:gold ice:water snow:water",
    ),
)
"""Common knowledge; the answers of a relation are those between which one chooses."""


class Facts(Analysis):
    """Of every fact the right answer is ranked among the answers of its relation: how often it is
    the first, and the mean of one over its rank. An answer that is always the most frequent of its
    relation is the baseline. Of the same with "not" the share where the first answer stays what it
    was: a model that hears it gives another."""

    kind: Literal["facts"] = "facts"
    number = "B29"
    group = "behaviour"
    question = "Which facts does a model know, and does it say them where they are denied?"
    source = "Petroni et al. 2019; Kassner and Schütze 2020"

    def lacks(self, case: Case) -> str | None:
        return lacks_words(case)

    def run(self, case: Case) -> Found:
        findings: list[Finding] = []
        firsts: list[NDArray[np.float64]] = []
        guesses: list[NDArray[np.float64]] = []
        stays: list[NDArray[np.float64]] = []
        for relation in RELATIONS:
            said, denied = (self._ranked(case.subject, relation, so) for so in (False, True))
            right = np.array([relation.answers.index(answer) for _, answer in relation.facts])
            # Of answers that are alike the right one comes last.
            rank = (said >= said[np.arange(len(right)), right][:, None]).sum(1)
            usual = Counter(right.tolist()).most_common(1)[0][0]
            firsts.append((rank == 1).astype(np.float64))
            guesses.append((right == usual).astype(np.float64))
            stays.append((said.argmax(1) == denied.argmax(1)).astype(np.float64))
            first, mean = (of_ratio(own, seed=case.seed) for own in (firsts[-1], 1 / rank))
            baseline = Baseline("most frequent answer", float(guesses[-1].mean()))
            findings += [
                Finding.over_texts(f"right first, {relation.name}", first, baseline=baseline),
                Finding.over_texts(f"mean of 1 over rank, {relation.name}", mean),
            ]
        known, guessed, same = map(np.concatenate, (firsts, guesses, stays))
        ones = np.ones(len(known))
        lead = of_difference((known, ones), (guessed, ones), seed=case.seed)
        findings += [
            Finding.over_texts(
                "right first",
                of_ratio(known, seed=case.seed),
                baseline=Baseline("most frequent answer", float(guessed.mean())),
            ),
            Finding.over_texts("right first, lead over the most frequent", lead),
            Finding.over_texts(
                "same answer where it is denied",
                of_ratio(same, seed=case.seed),
                baseline=Baseline("half", 0.5),
            ),
        ]
        return Found(findings, {"known": known, "guessed": guessed, "same": same})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "facts are known better than the most frequent answer of their relation",
                "32.3 % of T-REx by BERT-large, 22 % by the most frequent",
                stored.of_all("right first, lead over the most frequent"),
                0.0,
                "alike",
            ),
            concluded(
                "where a fact is denied the answer mostly stays what it was",
                "the first answers overlap in most relations",
                stored.of_all("same answer where it is denied"),
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = [stored.of_all(f"right first, {relation.name}") for relation in RELATIONS]
        places = np.arange(len(own))
        axes.bar(places - 0.2, [each["value"] for each in own], 0.4, label="the model")
        guessed = [each["baseline"]["value"] for each in own]
        axes.bar(places + 0.2, guessed, 0.4, label="most frequent answer")
        axes.set_xticks(places, [relation.name for relation in RELATIONS])
        axes.set_ylabel("share of facts whose answer comes first")
        axes.legend()

    def _ranked(self, subject: Subject, relation: Relation, denied: bool) -> NDArray[np.float64]:
        """How likely each answer is for each fact, (facts, answers), in nats."""
        answers = relation.answers
        sentences = [
            relation.sentence(given, answer, denied)
            for given, _ in relation.facts
            for answer in answers
        ]
        asked = [relation.asked(denied)] * len(sentences)
        return log_probabilities_in(subject, sentences, asked).reshape(-1, len(answers))
