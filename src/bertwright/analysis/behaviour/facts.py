"""Factual knowledge from cloze sentences, and whether negation changes the answer.

Petroni et al. (2019); Kassner and Schütze (2020).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertwright.analysis.behaviour.cloze import word_log_probabilities
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_lm_head
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import SentenceWords
from bertwright.core.significance import FloatArray


@dataclass(frozen=True)
class FactRelation:
    """A relation: templates with a subject X and an object Y, and pairs "subject:object"."""

    name: str
    template: str
    negated_template: str
    pairs: str

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Subjects with their objects."""
        pairs = (pair.split(":") for pair in self.pairs.split())
        return [(subject, target) for subject, target in pairs]

    @property
    def candidates(self) -> list[str]:
        """The candidate objects, sorted."""
        return sorted({target for _, target in self.facts})

    def words(self, is_negated: bool) -> list[str]:
        """Return the words of the template."""
        return (self.negated_template if is_negated else self.template).split()

    def sentence(self, subject: str, candidate: str, is_negated: bool) -> SentenceWords:
        """Return the filled template as words."""
        filled = {"X": subject, "Y": candidate}
        return tuple(filled.get(word, word) for word in self.words(is_negated))

    def candidate_index(self, is_negated: bool) -> int:
        """Return the index of the object's word in the sentence."""
        return self.words(is_negated).index("Y")

    def sentences(self, is_negated: bool) -> list[SentenceWords]:
        """Return the sentences of all subjects with all candidates, (facts * candidates)."""
        return [
            self.sentence(subject, candidate, is_negated)
            for subject, _ in self.facts
            for candidate in self.candidates
        ]


FACT_RELATIONS = (
    FactRelation(
        "capital",
        "X is the capital of Y .",
        "X is not the capital of Y .",
        "Paris:France Berlin:Germany Madrid:Spain Rome:Italy London:England Moscow:Russia "
        "Tokyo:Japan Cairo:Egypt Athens:Greece Vienna:Austria Lisbon:Portugal Dublin:Ireland "
        "Warsaw:Poland Stockholm:Sweden Oslo:Norway",
    ),
    FactRelation(
        "language",
        "people in X speak Y .",
        "people in X do not speak Y .",
        "France:French Germany:German Spain:Spanish Italy:Italian England:English Russia:Russian "
        "Japan:Japanese China:Chinese Portugal:Portuguese Brazil:Portuguese Mexico:Spanish "
        "Austria:German Greece:Greek Poland:Polish Australia:English",
    ),
    FactRelation(
        "colour",
        "the colour of X is Y .",
        "the colour of X is not Y .",
        "snow:white milk:white salt:white grass:green leaves:green blood:red fire:red roses:red "
        "coal:black night:black sky:blue sea:blue gold:yellow corn:yellow",
    ),
    FactRelation(
        "opposite",
        "the opposite of X is Y .",
        "the opposite of X is not Y .",
        "hot:cold big:small high:low old:young rich:poor good:bad long:short black:white "
        "light:dark strong:weak wet:dry early:late love:hate war:peace",
    ),
    FactRelation(
        "month",
        "the month after X is Y .",
        "the month after X is not Y .",
        "January:February February:March March:April April:May May:June June:July July:August "
        "August:September September:October October:November November:December December:January",
    ),
    FactRelation(
        "work",
        "the work of a X is to Y .",
        "the work of a X is not to Y .",
        "teacher:teach painter:paint writer:write singer:sing baker:bake dancer:dance farmer:farm "
        "driver:drive builder:build hunter:hunt",
    ),
    FactRelation(
        "stuff",
        "X is made of Y .",
        "X is not made of Y .",
        "bread:flour wine:grapes glass:sand paper:wood furniture:wood cheese:milk butter:milk "
        "steel:iron jewelry:gold ice:water snow:water",
    ),
)
"""Common knowledge; the candidates of a relation are its objects."""

PRECISION = "precision at 1"
PRECISION_GAIN = "precision at 1, minus the most frequent answer"
SAME_ANSWER = "same answer when negated"


class FactualKnowledge(Analysis):
    """The rank of the correct answer among the candidates of its relation.

    Measured are precision at 1 and mean reciprocal rank; the baseline is the most frequent answer
    of the relation. Also measured is the fraction of negated sentences with the same top answer,
    which a model that understands negation would change.
    """

    kind: Literal["facts"] = "facts"
    survey_id = "B29"
    title = "Which facts does a model know, and does it repeat them when they are negated?"
    source = "Petroni et al. 2019; Kassner and Schütze 2020"
    requires = (missing_lm_head,)
    claims = (
        Claim(
            "facts are known better than the most frequent answer of their relation",
            "32.3 % of T-REx by BERT-large, 22 % by the most frequent answer",
            PRECISION_GAIN,
        ),
        Claim(
            "when a fact is negated the answer mostly stays the same",
            "the first answers overlap in most relations",
            SAME_ANSWER,
            baseline=None,
        ),
    )
    plots = (
        FindingBars(
            PRECISION, tuple(f"{PRECISION}, {relation.name}" for relation in FACT_RELATIONS)
        ),
    )

    def built_in_sentences(self, seed: int) -> list[SentenceWords]:
        return [
            sentence
            for relation in FACT_RELATIONS
            for is_negated in (False, True)
            for sentence in relation.sentences(is_negated)
        ]

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        findings = Findings(inputs.seed)
        by_relation: list[FloatArray] = []
        for relation in FACT_RELATIONS:
            affirmed, negated = (
                self._candidate_log_probabilities(inputs.model, relation, is_negated)
                for is_negated in (False, True)
            )
            targets = np.array([relation.candidates.index(target) for _, target in relation.facts])
            # On equal scores the correct answer ranks last.
            scores = affirmed[np.arange(len(targets)), targets]
            rank = (affirmed >= scores[:, None]).sum(1)
            most_frequent = Counter(targets.tolist()).most_common(1)[0][0]
            is_same = affirmed.argmax(1) == negated.argmax(1)
            by_relation.append(
                np.array([rank == 1, targets == most_frequent, is_same], dtype=np.float64)
            )
            is_first, is_baseline, _ = by_relation[-1]
            baseline = BaselineValue("most frequent answer", float(is_baseline.mean()))
            findings.add_ratio(f"{PRECISION}, {relation.name}", is_first, baseline=baseline)
            findings.add_ratio(f"mean reciprocal rank, {relation.name}", 1 / rank)
        is_correct, is_baseline, is_same = np.concatenate(by_relation, axis=1)
        findings.add_ratio(
            PRECISION,
            is_correct,
            baseline=BaselineValue("most frequent answer", float(is_baseline.mean())),
        )
        findings.add_difference(PRECISION_GAIN, is_correct, is_baseline)
        findings.add_ratio(SAME_ANSWER, is_same, baseline=BaselineValue("half", 0.5))
        arrays = {
            "is_correct": is_correct,
            "is_correct_baseline": is_baseline,
            "is_same_when_negated": is_same,
        }
        return AnalysisResult(findings, arrays)

    def _candidate_log_probabilities(
        self, model: AnalysedModel, relation: FactRelation, is_negated: bool
    ) -> FloatArray:
        """Return the log-probabilities of all candidates in nats, (facts, candidates)."""
        sentences = relation.sentences(is_negated)
        indices = [relation.candidate_index(is_negated)] * len(sentences)
        scores = word_log_probabilities(model, sentences, indices)
        return scores.reshape(-1, len(relation.candidates))
