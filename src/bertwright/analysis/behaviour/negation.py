"""How negation changes the predicted category of a thing (Ettinger 2020, section 7)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertwright.analysis.behaviour.cloze import word_log_probabilities
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_lm_head
from bertwright.analysis.core.result import (
    AnalysisResult,
    BaselineValue,
    Findings,
)
from bertwright.analysis.core.texts import SentenceWords
from bertwright.core.significance import binomial_interval, mcnemar_test

CATEGORY_EXAMPLES = {
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
"""Examples of each category; each category is the correct one as often as the wrong one."""

AFFIRMED, NEGATED = "true completions preferred, affirmed", "true completions preferred, negated"


class Negation(Analysis):
    """Whether the true completion is likelier than the false one, affirmed and negated.

    "A robin is a bird" is compared with the same sentence about another category; so is "a robin is
    not a bird", which should be less likely. There are 24 things in 12 categories.
    """

    kind: Literal["negation"] = "negation"
    survey_id = "B28"
    title = "Does a model understand negation?"
    source = "Ettinger 2020"
    requires = (missing_lm_head,)
    claims = (
        Claim(
            "in affirmative sentences the true completion is preferred",
            "100 % in BERT-base",
            AFFIRMED,
            baseline=None,
        ),
        Claim(
            "in negated sentences the false completion is still preferred",
            "the true one in 0 % in BERT-base",
            NEGATED,
            baseline=None,
            direction="below",
        ),
    )
    plots = (FindingBars("fraction of true completions preferred", (AFFIRMED, NEGATED)),)

    def built_in_sentences(self, seed: int) -> list[SentenceWords]:
        return [
            item.sentence(is_negated, completion)
            for item in negation_items()
            for is_negated in (False, True)
            for completion in ("kind", "other")
        ]

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        items = negation_items()
        scores = {
            (is_negated, completion): word_log_probabilities(
                inputs.model,
                [item.sentence(is_negated, completion) for item in items],
                [item.category_index(is_negated) for item in items],
            )
            for is_negated in (False, True)
            for completion in ("kind", "other")
        }
        differences = [
            scores[False, "kind"] - scores[False, "other"],
            scores[True, "other"] - scores[True, "kind"],
        ]
        affirmed = scores[False, "kind"] > scores[False, "other"]
        negated = scores[True, "other"] > scores[True, "kind"]
        chance = BaselineValue("chance", 0.5)
        findings = Findings(inputs.seed)
        for metric, values in ((AFFIRMED, affirmed), (NEGATED, negated)):
            interval = binomial_interval(int(values.sum()), len(values))
            findings.add_interval(metric, interval, baseline=chance)
        findings.add_value(
            "affirmed minus negated",
            findings[0].value - findings[1].value,
            p_value=mcnemar_test(affirmed.tolist(), negated.tolist()),
        )
        return AnalysisResult(findings, {"differences": np.stack(differences)})


@dataclass(frozen=True)
class NegationItem:
    """A noun phrase with its category and a wrong category."""

    noun_phrase: str
    category: str
    other_category: str

    def sentence(self, is_negated: bool, completion: str) -> SentenceWords:
        """Return the words of the sentence, with the correct ("kind") or the wrong category."""
        verb = ("is", "not", "a") if is_negated else ("is", "a")
        category = self.category if completion == "kind" else self.other_category
        return (*self.noun_phrase.split(), *verb, category, ".")

    def category_index(self, is_negated: bool) -> int:
        """Return the index of the category in the sentence."""
        return len(self.noun_phrase.split()) + (3 if is_negated else 2)


def negation_items() -> list[NegationItem]:
    """Return all items."""
    categories = list(CATEGORY_EXAMPLES)
    return [
        NegationItem(example, category, categories[(number + 5 + index) % len(categories)])
        for number, category in enumerate(categories)
        for index, example in enumerate(CATEGORY_EXAMPLES[category])
    ]
