"""Whether trees are encoded in attention or in hidden states, by the same metric.

Clark et al. (2019); Hewitt and Manning (2019).
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_trees
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    Findings,
    adjust_p_values,
)
from bertwright.analysis.core.word_states import WORD_STATE_TAPS
from bertwright.analysis.probing.structural_probe import StructuralProbe, TreeSentence
from bertwright.analysis.syntax.attention_parser import AttentionParser
from bertwright.analysis.syntax.tree_methods import (
    TREE_METHODS,
    Counts,
    TreeMethodInputs,
    TreeMethodScores,
    complete_sentences,
)
from bertwright.core.significance import holm, sign_flip_test

MIN_SENTENCES = 8
"""Number of sentences with trees; half of them are for training."""

LEARNING_RATE = 1e-2
"""Initial learning rate of the distance probe: ten times the published one, with which probes stop
too early on few sentences. It is reduced on plateaus."""

LINEAR_CHAIN = "linear chain"

COMPARED_METHODS = (
    ("weighted heads", "one head"),
    ("hidden states", "one head"),
    ("hidden states", "weighted heads"),
)
"""Pairs of methods whose difference is tested."""


class AttentionOrStates(Analysis):
    """How many tree edges (UUAS, without punctuation) attention and hidden states recover.

    The methods in ``TREE_METHODS`` are: links from one head to the most attended word, in one
    direction; the maximum spanning tree of one head, of the mean of all heads, and of a weighted
    sum of all heads; and the minimum spanning tree of a distance probe on hidden states. The head,
    weights, probe and layer come from half of the sentences, scores from the other half. Baselines
    are the same model with random weights and the linear chain of words. The probe has more
    parameters than the weighted sum, so hidden states look worse with a few hundred sentences than
    with a thousand. Only the first ``max_sentences`` sentences are used.
    """

    kind: Literal["attention-or-states"] = "attention-or-states"
    max_sentences: int = Field(default=1000, ge=MIN_SENTENCES)
    rank: int = Field(default=64, ge=1)
    epochs: int = Field(default=30, ge=1)
    survey_id = "B26"
    title = "Are trees encoded in attention or in hidden states?"
    source = "Clark et al. 2019; Hewitt and Manning 2019"
    taps = ("blocks.*.attention.weights", *WORD_STATE_TAPS)
    requires = (missing_trees,)
    claims = (
        Claim(
            "all heads together tell more about a tree than the best head",
            "61 % and 34.5 % in BERT-base, of directed edges",
            "UUAS, weighted heads minus one head",
        ),
        Claim(
            "hidden states tell more about a tree than the best head",
            "79.8 % of edges by hidden states, 34.5 % of directed ones by a head of BERT-base",
            "UUAS, hidden states minus one head",
        ),
        Claim(
            "hidden states tell more about a tree than all heads together",
            "79.8 % of edges by hidden states, 61 % of directed ones by heads of BERT-base",
            "UUAS, hidden states minus weighted heads",
        ),
        Claim(
            "all heads together tell more about a tree than the linear chain",
            "61 % and 26 % in BERT-base, of directed edges",
            f"UUAS, weighted heads minus {LINEAR_CHAIN}",
        ),
        Claim(
            "hidden states tell more about a tree than those of an untrained model",
            "77.0 % and 59.8 % in ELMo's first layer",
            "UUAS, hidden states minus untrained",
        ),
    )
    plots = (FindingBars("UUAS", "UUAS, "),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        reason = super().not_applicable(inputs)
        if (
            reason is None
            and len(complete_sentences(inputs.texts, self.max_sentences)) < MIN_SENTENCES
        ):
            return f"it needs {MIN_SENTENCES} sentences of two words or more with dependency trees"
        return reason

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        texts = complete_sentences(inputs.texts, self.max_sentences)
        scores, test = self._method_scores(replace(inputs, texts=texts))
        untrained_scores, _ = self._method_scores(
            AnalysisInput(inputs.model.with_random_weights(inputs.seed), texts, inputs.seed)
        )
        untrained = {name: score.num_correct for name, score in untrained_scores.items()}
        num_edges = np.array([len(sentence.edges) for sentence in test])
        chain = np.array(
            [sentence.num_correct_edges(sentence.chain_distances) for sentence in test]
        )

        findings = Findings(inputs.seed)
        findings.add_ratio(f"UUAS, {LINEAR_CHAIN}", chain, num_edges)
        for name, score in scores.items():
            baseline = BaselineValue("untrained", float(untrained[name].sum() / num_edges.sum()))
            findings.add_ratio(
                f"UUAS, {name}",
                score.num_correct,
                num_edges,
                layer=score.layer,
                head=score.head,
                baseline=baseline,
                note=score.note,
            )
            findings.add_ratio(f"UUAS, {name}, untrained", untrained[name], num_edges)
        return AnalysisResult(
            [*findings, *_difference_findings(scores, untrained, chain, num_edges, inputs.seed)],
            {
                "num_edges": num_edges,
                "chain": chain,
                "trained": np.stack([score.num_correct for score in scores.values()]),
                "untrained": np.stack(list(untrained.values())),
            },
        )

    def _method_scores(
        self, inputs: AnalysisInput
    ) -> tuple[dict[str, TreeMethodScores], list[TreeSentence]]:
        """Score the test sentences with every method; return the scores and these sentences."""
        parser = AttentionParser(max_sentences=self.max_sentences, epochs=self.epochs)
        probe = StructuralProbe(rank=self.rank, learning_rate=LEARNING_RATE, epochs=self.epochs)
        method_inputs = TreeMethodInputs(inputs, parser, probe)
        test = [method_inputs.sentences[number] for number in method_inputs.test_indices]
        return {name: method(method_inputs) for name, method in TREE_METHODS.items()}, test


def _difference_findings(
    scores: dict[str, TreeMethodScores],
    untrained_scores: dict[str, Counts],
    chain_scores: Counts,
    num_edges: Counts,
    seed: int,
) -> list[AnalysisFinding]:
    """Compare methods with random weights, the linear chain and each other; Holm's correction."""
    pairs = {
        f"{name} minus untrained": (scores[name].num_correct, untrained_scores[name])
        for name in TREE_METHODS
    }
    pairs |= {
        f"{name} minus {LINEAR_CHAIN}": (scores[name].num_correct, chain_scores)
        for name in TREE_METHODS
    }
    pairs |= {
        f"{first} minus {second}": (scores[first].num_correct, scores[second].num_correct)
        for first, second in COMPARED_METHODS
    }
    findings = Findings(seed)
    for name, (first, second) in pairs.items():
        p_value = sign_flip_test(first - second, seed=seed)
        findings.add_difference(
            f"UUAS, {name}", (first, num_edges), (second, num_edges), p_value=p_value
        )
    return adjust_p_values(findings, holm)
