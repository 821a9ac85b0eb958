"""Heads that look at certain words, and along certain links (Kovaleva et al. 2019, section 4.2)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored, span_of
from bertwright.analysis.listening import Heard
from bertwright.analysis.texts import lacks_trees
from bertwright.randomness import key, uniform
from bertwright.significance import benjamini_hochberg, halves, of_ratio, sign_flips
from bertwright.tasks.formats.treebank import Tree

Floats = NDArray[np.float64]

NEGATIONS = frozenset({"not", "n't", "no", "never", "nobody", "nothing", "none", "neither", "nor"})

WORDS = ("nouns", "verbs", "pronouns", "subjects", "objects", "negations")
LINKS = {"subject to verb": "nsubj", "object to verb": "obj"}
"""What is looked at, and along what."""

ROUNDING = 6
"""Digits of a lead: what follows them says nothing, and can say it in every sentence."""


class AttentionFeatures(Listening):
    """Of each sentence that has nouns, verbs, pronouns, subjects, objects or negations how much
    attention goes to the one of them that gets most, averaged over all words, less what goes to the
    most looked at of as many words drawn from the sentence; and along the links of subjects and
    objects to their verbs the most, less that of as many pairs as far apart. Words that more places
    see and words of more pieces get more of even attention: by what it gives to the one side more
    than to the other the baseline is moved. The head that is ahead most is chosen on half of the
    sentences and judged on the other. What fewer than ``least`` of these have is left out."""

    kind: Literal["attention-features"] = "attention-features"
    least: int = Field(default=10, ge=2)
    number = "B49"
    group = "syntax"
    question = "Do heads look at nouns, verbs, negations, or along subjects and objects?"
    source = "Kovaleva et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def lacks(self, case: Case) -> str | None:
        return lacks_trees(case.texts) or super().lacks(case)

    def listener(self, case: Case) -> "FeaturesHeard":
        return FeaturesHeard(case, self.least)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        published = {"words": "small beside separators", "links": "2 of 144 heads, for frames"}
        found: list[Conclusion] = []
        for what, names in (("words", WORDS), ("links", tuple(LINKS))):
            own = [f for f in stored.findings if f["metric"] in names]
            sure = [f for f in own if f["adjusted"] < 0.05 and f.get("lead", (0,))[0] > 0]
            if own:
                found.append(
                    Conclusion(
                        f"for some of these {what} a head looks more at them than at others",
                        published[what],
                        len(sure),
                        None,
                        0,
                        "none",
                        num_units=stored.num_texts,
                    )
                )
        return found

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = stored.findings
        places = np.arange(len(own))
        axes.bar(places - 0.2, [each["value"] for each in own], 0.4, label="best head")
        others = [each["baseline"]["value"] for each in own]
        axes.bar(places + 0.2, others, 0.4, label="other words, as many")
        axes.set_xticks(
            places,
            [f"{e['metric']}\n{e['layer_from_1']}-{e['head_from_1']}" for e in own],
            rotation=30,
        )
        axes.set_ylabel("attention")
        axes.legend()


class FeaturesHeard:
    """Of every sentence, layer and head the attention to each feature, and to what was drawn in its
    place; nan where a sentence has none of it."""

    sites = AttentionFeatures.sites

    def __init__(self, case: Case, least: int) -> None:
        self.least, self.seed = least, case.seed
        subject, self.names = case.subject, (*WORDS, *LINKS)
        shape = (2, len(self.names), len(case.texts), subject.num_layers, subject.num_heads)
        self.found_of = np.full(shape, np.nan, np.float32)

    def hear(self, heard: Heard) -> None:
        """Look at a batch."""
        for layer in range(self.found_of.shape[3]):
            weights, alike = heard.attention(layer), heard.even(layer)
            for row, number in enumerate(heard.numbers):
                tree, size = heard.texts[row].source, len(heard.texts[row].words)
                assert isinstance(tree, Tree)
                between = heard.between_words(row, weights[row])
                even = heard.between_words(row, alike[row])
                into = self.found_of[:, :, number, layer]
                for place, of in enumerate(featured(tree, size).values()):
                    if 0 < len(of) < size:
                        others = self._drawn(number, place, size)[: len(of)]
                        into[:, place] = against(most_looked_at, between, even, of, others)
                for place, of in enumerate(linked(tree, size).values(), start=len(WORDS)):
                    apart = as_far_apart(of, size)
                    if apart:
                        into[:, place] = against(most_along, between, even, of, apart)

    def found(self) -> Found:
        """The best head of each feature, chosen on one half and judged on the other."""
        choosing, judging = halves(self.found_of.shape[2], self.seed)
        findings: list[Finding] = []
        chances: list[float] = []
        for place, name in enumerate(self.names):
            own, others = self.found_of[:, place].astype(np.float64)
            has = ~np.isnan(own[:, 0, 0])
            learned, judged = (half[has[half]] for half in (choosing, judging))
            if len(judged) < self.least or not len(learned):
                continue
            leads = np.round(own - others, ROUNDING)
            ahead = leads[learned].mean(0)
            layer, head = map(int, np.unravel_index(ahead.argmax(), ahead.shape))
            chosen, drawn, ahead = (of[judged, layer, head] for of in (own, others, leads))
            lead = of_ratio(ahead, seed=self.seed)
            chances.append(sign_flips(ahead, seed=self.seed))
            baseline = Baseline("other words, as many", float(drawn.mean()))
            interval = of_ratio(chosen, seed=self.seed)
            finding = Finding.over_texts(name, interval, layer, head, baseline)
            findings.append(replace(finding, chance=chances[-1], lead=span_of(lead)))
        adjusted = benjamini_hochberg(chances) if chances else ()
        number_of = (~np.isnan(self.found_of)).sum(2)
        return Found(
            [
                replace(own, adjusted=float(value), family=len(chances))
                for own, value in zip(findings, adjusted, strict=True)
            ],
            {"heads": np.nan_to_num(self.found_of).sum(2) / np.maximum(number_of, 1)},
        )

    def _drawn(self, number: int, place: int, size: int) -> list[int]:
        numbers = uniform(key(self.seed, "other words", place), number, np.arange(size))
        return [int(word) for word in np.argsort(numbers)]


def featured(tree: Tree, size: int) -> dict[str, list[int]]:
    """The words of each kind among the first ``size``."""

    def those(holds: "list[bool]") -> list[int]:
        return [word for word, own in enumerate(holds[:size]) if own]

    return {
        "nouns": those([tag in ("NOUN", "PROPN") for tag in tree.tags]),
        "verbs": those([tag == "VERB" for tag in tree.tags]),
        "pronouns": those([tag == "PRON" for tag in tree.tags]),
        "subjects": those([relation == "nsubj" for relation in tree.relations]),
        "objects": those([relation == "obj" for relation in tree.relations]),
        "negations": those([word.lower() in NEGATIONS for word in tree.words]),
    }


def linked(tree: Tree, size: int) -> dict[str, list[tuple[int, int]]]:
    """The links of each kind among the first ``size`` words, from the dependent to its head."""
    return {
        name: [
            (word, tree.heads[word])
            for word in range(size)
            if tree.relations[word] == relation and 0 <= tree.heads[word] < size
        ]
        for name, relation in LINKS.items()
    }


def as_far_apart(links: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """For each link the pair as far apart that begins nearest to it, and is no link."""
    found: list[tuple[int, int]] = []
    for word, head in links:
        others = [
            (other, other + head - word)
            for other in range(size)
            if 0 <= other + head - word < size and (other, other + head - word) not in links
        ]
        if others:
            found.append(min(others, key=lambda pair: abs(pair[0] - word)))
    return found


def against(
    most: Callable[[Tensor, Sequence[Any]], Floats],
    between: Tensor,
    even: Tensor,
    of: Sequence[Any],
    others: Sequence[Any],
) -> tuple[Floats, Floats]:
    """The most that these get of attention between words, and the most that others would if even
    attention gave as much to both."""
    ahead = most(even, of) - most(even, others)
    return most(between, of), most(between, others) + ahead


def most_looked_at(between: Tensor, words: Sequence[int]) -> Floats:
    """Of attention between words (H, W, W) what the most looked at of these gets, (H,)."""
    return between.mean(-2)[:, list(words)].amax(-1).double().cpu().numpy()


def most_along(between: Tensor, links: Sequence[tuple[int, int]]) -> Floats:
    """The most along any of these links, either way, (H,)."""
    first, second = map(list, zip(*links, strict=True))
    both = between[:, first, second].maximum(between[:, second, first])
    return both.amax(-1).double().cpu().numpy()
