"""Subject-verb agreement: which of two sentences that differ only in the verb is likelier.

Marvin and Linzen (2018); Goldberg (2019); Warstadt et al. (2020).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.behaviour.cloze import word_log_probabilities
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_lm_head
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import SentenceWords
from bertwright.core.rng import stream_key

SINGULAR = ("boy", "girl", "teacher", "farmer", "doctor", "driver", "player", "writer")
PLURAL = ("boys", "girls", "teachers", "farmers", "doctors", "drivers", "players", "writers")
PREPOSITIONS = ("near", "behind", "beside", "with")
CLAUSE_VERBS = (("likes", "like"), ("knows", "know"), ("sees", "see"), ("helps", "help"))
MAIN_VERBS = (("is", "are"), ("was", "were"), ("has", "have"))
SENTENCE_ENDINGS = {"is": "here", "was": "there", "has": "time"}


class SubjectVerbAgreement(Analysis):
    """How often the correct form of a verb is likelier than the wrong one.

    The sentences are simple; have a prepositional phrase with a noun of the other number before the
    verb; or have the verb after or inside a relative clause. ``num_pairs`` of each are sampled from
    a small grammar. A causal model predicts the verb from the left context, a masked model from
    both sides.
    """

    kind: Literal["agreement"] = "agreement"
    num_pairs: int = Field(default=200, ge=1)
    survey_id = "B27"
    title = "Does a verb agree with its subject, whatever stands between?"
    source = "Marvin and Linzen 2018; Goldberg 2019"
    requires = (missing_lm_head,)
    claims = (
        Claim(
            "a verb agrees with its subject in simple sentences",
            "100 % in BERT-base",
            "simple",
            baseline=None,
        ),
        Claim(
            "it agrees across a noun of the other number",
            "85 % to 97 % in BERT-base, by what stands between",
            "attractor",
            baseline=None,
        ),
        Claim(
            "it does so less often than in simple sentences",
            "97 % to 100 % in BERT-base",
            "simple minus attractor",
        ),
    )
    plots = (FindingBars("fraction of correct forms", ""),)

    def built_in_sentences(self, seed: int) -> list[SentenceWords]:
        return [
            pair.sentence(is_correct)
            for pairs in self.sample_pairs(seed).values()
            for pair in pairs
            for is_correct in (True, False)
        ]

    def sample_pairs(self, seed: int) -> dict[str, list["AgreementPair"]]:
        """Sample the sentence pairs of all paradigms."""
        pairs: dict[str, list[AgreementPair]] = {}
        for name, paradigm in PARADIGMS.items():
            generator = np.random.default_rng(stream_key(seed, name))
            pairs[name] = [sample_pair(paradigm, generator) for _ in range(self.num_pairs)]
        return pairs

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        findings = Findings(inputs.seed)
        differences: dict[str, np.ndarray] = {}
        is_preferred: dict[str, np.ndarray] = {}
        for name, pairs in self.sample_pairs(inputs.seed).items():
            indices = [pair.verb_index for pair in pairs]
            correct, wrong = (
                word_log_probabilities(
                    inputs.model, [pair.sentence(is_correct) for pair in pairs], indices
                )
                for is_correct in (True, False)
            )
            differences[name] = correct - wrong
            is_preferred[name] = np.where(differences[name] == 0, 0.5, differences[name] > 0)
            chance = BaselineValue("chance", 0.5)
            findings.add_ratio(name, is_preferred[name], baseline=chance)
        findings.add_difference(
            "simple minus attractor", is_preferred["simple"], is_preferred["attractor"]
        )
        return AnalysisResult(findings, differences)


@dataclass(frozen=True)
class AgreementPair:
    """A sentence with the index of its verb, and the verb's wrong form."""

    words: SentenceWords
    verb_index: int
    wrong_form: str

    def sentence(self, is_correct: bool) -> SentenceWords:
        """Return the sentence with the correct or the wrong form."""
        verb = self.words[self.verb_index] if is_correct else self.wrong_form
        return (*self.words[: self.verb_index], verb, *self.words[self.verb_index + 1 :])


PARADIGMS = {
    "simple": "the SUBJECT *VERB ENDING .",
    "attractor": "the SUBJECT PREPOSITION the OTHER *VERB ENDING .",
    "behind a clause": "the SUBJECT who CLAUSE-VERB the OTHER *VERB ENDING .",
    "inside a clause": "the OTHER whom the SUBJECT *CLAUSE-VERB left early .",
}
"""Sentences by name; OTHER has the other number than the subject; * marks the tested verb."""


def sample_pair(paradigm: str, generator: np.random.Generator) -> AgreementPair:
    """Sample a pair of a paradigm, with a singular or plural subject."""
    is_plural = int(generator.integers(2))
    nouns = (SINGULAR, PLURAL)
    verb = MAIN_VERBS[generator.integers(len(MAIN_VERBS))]
    clause_verb = CLAUSE_VERBS[generator.integers(len(CLAUSE_VERBS))]
    words = {
        "SUBJECT": str(generator.choice(nouns[is_plural])),
        "OTHER": str(generator.choice(nouns[1 - is_plural])),
        "VERB": verb[is_plural],
        "ENDING": SENTENCE_ENDINGS[verb[0]],
        "CLAUSE-VERB": clause_verb[is_plural],
        "PREPOSITION": str(generator.choice(PREPOSITIONS)),
    }
    slots = paradigm.split()
    (index,) = (n for n, slot in enumerate(slots) if slot.startswith("*"))
    wrong = {"*VERB": verb, "*CLAUSE-VERB": clause_verb}[slots[index]][1 - is_plural]
    sentence = tuple(words.get(slot.removeprefix("*"), slot) for slot in slots)
    return AgreementPair(sentence, index, wrong)
