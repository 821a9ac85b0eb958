"""Heads that look from a mention of somebody to an earlier one (Clark et al. 2019, section 4.3)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.subject import Subject
from bertwright.analysis.syntax.mentions import KINDS, Mention, Tale, tales
from bertwright.analysis.texts import ReadText, read_texts
from bertwright.randomness import key
from bertwright.significance import (
    benjamini_hochberg,
    halves,
    of_difference,
    of_ratio,
    sign_flips,
)
from bertwright.tasks.formats.examples import TaggedWords

Floats = NDArray[np.float64]

LENGTH = 512
"""Places of a row, so that no tale is cut by more than the model itself."""

OF = ("all", *KINDS)
"""The kinds of mentions that are judged."""


class Coreference(Analysis):
    """In short tales of two or three people one of them is spoken of again, by a pronoun, a name or
    a noun. A head is right where from there it looks, of all earlier mentions, most to one of the
    same person; of several that get as much by the share that is. The best head is chosen on half
    of the tales and judged on the other half, on all of them and on those of each kind. Beside it
    stand the nearest mention, the nearest of the same word, a rule (the same word, else the nearest
    whose gender and number fit), and the best head of the model with weights as they are drawn. The
    tales are drawn from a grammar of our own, ``drawn`` of each kind."""

    kind: Literal["coreference"] = "coreference"
    drawn: int = Field(default=200, ge=20)
    number = "B8"
    group = "syntax"
    question = "Do heads look from a mention of somebody to an earlier one?"
    source = "Clark et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def lacks(self, case: Case) -> str | None:
        if 2 * len(self.asked_of(case)[0]) < len(KINDS) * self.drawn:
            return "its rows are too short for most of the tales that it would be asked of"
        return super().lacks(case)

    def run(self, case: Case) -> Found:
        own, texts = self.asked_of(case)
        choosing, judging = halves(len(own), case.seed)
        trained, untrained = (
            looked_at(subject, texts, own)
            for subject in (case.subject, case.subject.untrained(case.seed))
        )
        (layer, head), drawn = (best_head(right[choosing]) for right in (trained, untrained))
        others = {
            name: np.array([tale.same[guess(tale, sieves)] for tale in own], np.float64)
            for name, sieves in GUESSES.items()
        } | {"untrained": untrained[:, *drawn]}
        findings: list[Finding] = []
        leads: list[Finding] = []
        for kind in OF:
            of = judging[[kind in ("all", own[n].kind) for n in judging]]
            right, ones = trained[of, layer, head], np.ones(len(of))
            baseline = Baseline("nearest mention", float(others["nearest mention"][of].mean()))
            share = of_ratio(right, seed=case.seed)
            findings.append(Finding.over_texts(f"best head, {kind}", share, layer, head, baseline))
            for name, other in others.items():
                share = of_ratio(other[of], seed=case.seed)
                findings.append(Finding.over_texts(f"{name}, {kind}", share))
                lead = of_difference((right, ones), (other[of], ones), seed=case.seed)
                told = Finding.over_texts(f"best head less {name}, {kind}", lead)
                chance = sign_flips(right - other[of], seed=case.seed)
                leads.append(replace(told, chance=chance))
        adjusted = benjamini_hochberg([lead.chance or 0.0 for lead in leads])
        findings += [
            replace(lead, adjusted=float(value), family=len(leads))
            for lead, value in zip(leads, adjusted, strict=True)
        ]
        return Found(findings, {"trained": trained.mean(0), "untrained": untrained.mean(0)})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        def less(other: str) -> dict[str, object]:
            return dict(stored.of_all(f"best head less {other}, all"))

        return [
            concluded(
                "a head finds an earlier mention more often than the nearest is one",
                "65 % to 27 % of BERT-base, in texts of CoNLL-2012",
                less("nearest mention"),
                0.0,
                "alike",
            ),
            concluded(
                "it finds one more often than the same word does",
                "65 % to 52 %",
                less("same word"),
                0.0,
                "alike",
            ),
            concluded(
                "it finds one less often than a rule of words, gender and number",
                "65 % to 69 %",
                less("rule"),
                0.0,
                "alike",
                "below",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        bars, grid = figure.subplots(1, 2, width_ratios=(2, 1))
        values = {own["metric"]: own["value"] for own in stored.findings}
        names = ("best head", *GUESSES, "untrained")
        places, width = np.arange(len(OF)), 0.8 / len(names)
        for number, name in enumerate(names):
            heights = [values[f"{name}, {kind}"] for kind in OF]
            bars.bar(places + (number - 2) * width, heights, width, label=name)
        bars.set_xticks(places, list(OF))
        bars.set_ylabel("share whose earlier mention is found")
        figure.legend(loc="outside upper center", ncols=len(names))
        image = grid.imshow(stored.arrays["trained"], aspect="auto")
        grid.xaxis.get_major_locator().set_params(integer=True)
        grid.yaxis.get_major_locator().set_params(integer=True)
        grid.set_xlabel("head, from 0")
        grid.set_ylabel("layer, from 0")
        figure.colorbar(image, label="share, all")

    def asked_of(self, case: Case) -> tuple[list[Tale], list[ReadText]]:
        """The tales that fit into a row of the model, and as it reads them."""
        own = tales(self.drawn, np.random.default_rng(key(case.seed, "coreference")))
        said = [TaggedWords(tale.words, tale.words) for tale in own]
        texts = read_texts(case.subject, said, LENGTH)
        whole = [n for n, tale in enumerate(own) if len(texts[n].words) == len(tale.words)]
        return [own[n] for n in whole], [texts[n] for n in whole]


def looked_at(subject: Subject, texts: Sequence[ReadText], own: Sequence[Tale]) -> Floats:
    """How far each head is right in each tale, (N, layers, heads)."""
    heard = _MentionsHeard(subject, own)
    listen(subject, texts, [heard])
    return heard.right


class _MentionsHeard:
    """Where heads look from the last mention of every tale."""

    sites = Coreference.sites

    def __init__(self, subject: Subject, own: Sequence[Tale]) -> None:
        self.tales = own
        self.right = np.zeros((len(own), subject.num_layers, subject.num_heads))

    def hear(self, heard: Heard) -> None:
        """Look at a batch."""
        for layer in range(self.right.shape[1]):
            weights = heard.attention(layer)
            for row, number in enumerate(heard.numbers):
                tale = self.tales[number]
                before = [mention.place for mention in tale.before]
                between = heard.between_words(row, weights[row]).cpu().numpy()
                given = between[:, tale.asked.place, before]
                most = given == given.max(1, keepdims=True)
                self.right[number, layer] = (most & tale.same).sum(1) / most.sum(1)

    def found(self) -> Found:
        """Nothing but what was seen."""
        return Found([])


def best_head(right: Floats) -> tuple[int, int]:
    """The layer and the head that are right most often, (N, layers, heads)."""
    layer, head = np.unravel_index(right.mean(0).argmax(), right.shape[1:])
    return int(layer), int(head)


def same_word(mention: Mention, asked: Mention) -> bool:
    """Whether both are said alike."""
    return mention.word == asked.word


def fitting(mention: Mention, asked: Mention) -> bool:
    """Whether gender and number let both be of one person."""
    forms = {mention.form, asked.form}
    return len(forms) == 1 or ("one" in forms and "several" not in forms)


Sieve = Callable[[Mention, Mention], bool]

GUESSES: dict[str, tuple[Sieve, ...]] = {
    "nearest mention": (),
    "same word": (same_word,),
    "rule": (same_word, fitting),
}
"""Who is guessed by what is said: the nearest of those that pass the first sieve that any passes
(Lee et al. 2011), of all where none does."""


def guess(tale: Tale, sieves: Sequence[Sieve]) -> int:
    """One of the earlier mentions."""
    for sieve in sieves:
        passed = [n for n, mention in enumerate(tale.before) if sieve(mention, tale.asked)]
        if passed:
            return passed[-1]
    return len(tale.before) - 1
