"""Heads that attend from a word to its syntactic head (Clark et al. 2019, section 4.2)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    StoredResult,
    interval_bounds,
    ratio_finding,
)
from bertwright.core.significance import (
    benjamini_hochberg,
    bootstrap_difference,
    sign_flip_test,
    split_halves,
)
from bertwright.tasks.formats.dependency_trees import DependencyTree

DIRECTIONS = ("attends to its head", "is attended to by its head")

OFFSETS = tuple(offset for offset in range(-5, 6) if offset)
"""Fixed offsets from a dependent to the head that a baseline predicts."""

PUBLISHED_ACCURACIES = {
    "det": "94.3 % and 51.7 %",
    "mark": "50.7 % and 14.5 %",
    "obj": "86.8 % and 40.0 %",
}
"""Best head and best offset of BERT-base on the Wall Street Journal."""


def _num_significant(result: StoredResult) -> Mapping[str, Any]:
    return result.computed_finding(sum(map(is_significantly_better, result.findings)))


def _lead_over_offset(relation: str, result: StoredResult) -> Mapping[str, Any] | None:
    metric = f"accuracy of {relation}"
    accuracy = next((f for f in result.findings if f["metric"] == metric), None)
    if accuracy is None:
        return None
    difference = accuracy["value"] - accuracy["baseline"]["value"]
    return {**accuracy, "value": difference, "interval": accuracy.get("difference_interval")}


class RelationHeads(StreamingAnalysis):
    """The accuracy of the best attention head for each dependency relation.

    A head predicts the most attended word, or the word that attends most. The baseline is the best
    fixed offset. Both are chosen on half of the sentences and tested on the other half. Relations
    with fewer than ``min_words`` words there are skipped; subtypes count as relations.
    """

    kind: Literal["relation-heads"] = "relation-heads"
    min_words: int = Field(default=20, ge=1)
    survey_id = "B6"
    group = "syntax"
    title = "Do heads attend from a word to its syntactic head?"
    source = "Clark et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "for some relations a head beats every fixed offset",
            "most relations of BERT-base",
            _num_significant,
            baseline_name="none",
        ),
        *(
            Claim(
                f"a head finds the syntactic head of {relation} more often than a fixed offset",
                published,
                partial(_lead_over_offset, relation),
                baseline_name="as often",
            )
            for relation, published in PUBLISHED_ACCURACIES.items()
        ),
    )
    plots = (FindingBars("accuracy of the best head", "accuracy of "),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if not any(isinstance(text.source, DependencyTree) for text in inputs.texts):
            return "it needs sentences with dependency trees: give a CoNLL-U file"
        return super().not_applicable(inputs)

    def consumer(self, inputs: AnalysisInput) -> "RelationHeadsConsumer":
        return RelationHeadsConsumer(inputs, self.min_words)


class RelationHeadsConsumer:
    """The consumer of correct predictions by sentence, head, direction and relation."""

    taps = RelationHeads.taps

    def __init__(self, inputs: AnalysisInput, min_words: int) -> None:
        self.min_words, self.seed = min_words, inputs.seed
        trees = [t.source for t in inputs.texts if isinstance(t.source, DependencyTree)]
        self.relations = sorted({r for tree in trees for r in tree.relations} - {"root", "punct"})
        number, model = len(inputs.texts), inputs.model
        heads = model.num_layers, model.num_heads
        shape = (number, *heads, len(DIRECTIONS), len(self.relations))
        self.num_correct = np.zeros(shape, np.int16)
        self.num_words = np.zeros((number, len(self.relations)), np.int64)
        self.num_correct_by_offset = np.zeros((number, len(OFFSETS), len(self.relations)), np.int64)

    def update(self, batch: ActivationBatch) -> None:
        """Count correct predictions in a batch."""
        weights = [batch.attention(layer) for layer in range(self.num_correct.shape[1])]
        for index, number in enumerate(batch.text_indices):
            tree = batch.texts[index].source
            if not isinstance(tree, DependencyTree):
                continue
            size = len(batch.texts[index].words)
            links = [
                (word, head, self.relations.index(relation))
                for word, (head, relation) in enumerate(
                    zip(tree.heads[:size], tree.relations[:size], strict=True)
                )
                if 0 <= head < size and relation in self.relations
            ]
            if not links:
                continue
            words, heads, relations = np.array(links).T
            np.add.at(self.num_words[number], relations, 1)
            for counts, offset in zip(self.num_correct_by_offset[number], OFFSETS, strict=True):
                np.add.at(counts, relations, words + offset == heads)
            for layer, layer_weights in enumerate(weights):
                between = batch.word_attention(index, layer_weights[index])
                is_correct = predicted_dependency_heads(between)[..., words] == heads
                for direction, head in np.ndindex(is_correct.shape[:2]):
                    counts = self.num_correct[number, layer, head, direction]
                    np.add.at(counts, relations, is_correct[direction, head])

    def result(self) -> AnalysisResult:
        """Return the best head of each relation, chosen on one half and tested on the other."""
        train, test = split_halves(len(self.num_words), self.seed)
        findings: list[AnalysisFinding] = []
        p_values: list[float] = []
        for number, relation in enumerate(self.relations):
            sentences = test[self.num_words[test, number] > 0]
            num_words = self.num_words[sentences, number]
            if num_words.sum() < self.min_words or not self.num_words[train, number].any():
                continue
            by_head = self.num_correct[train, ..., number].sum(0, dtype=np.int64)
            layer, head, direction = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
            offset = int(self.num_correct_by_offset[train, :, number].sum(0).argmax())
            correct = self.num_correct[sentences, layer, head, direction, number].astype(np.int64)
            by_offset = self.num_correct_by_offset[sentences, offset, number]
            difference = bootstrap_difference(
                (correct, num_words), (by_offset, num_words), seed=self.seed
            )
            p_values.append(sign_flip_test(correct - by_offset, seed=self.seed))
            baseline = BaselineValue(
                f"the word at {OFFSETS[offset]:+d}", by_offset.sum() / num_words.sum()
            )
            finding = ratio_finding(
                f"accuracy of {relation}",
                correct,
                num_words,
                seed=self.seed,
                layer=layer,
                head=head,
                baseline=baseline,
            )
            findings.append(
                replace(
                    finding,
                    p_value=p_values[-1],
                    difference_interval=interval_bounds(difference),
                    note=DIRECTIONS[direction],
                )
            )
        adjusted = benjamini_hochberg(p_values) if p_values else ()
        return AnalysisResult(
            [
                replace(finding, adjusted_p_value=float(value), num_tests=len(p_values))
                for finding, value in zip(findings, adjusted, strict=True)
            ],
            {
                "num_correct": self.num_correct.sum(0, dtype=np.int64),
                "num_words": self.num_words.sum(0),
            },
        )


def is_significantly_better(finding: Mapping[str, Any]) -> bool:
    """Return True if a stored finding is above its baseline, adjusted for all tests."""
    return finding["adjusted_p_value"] < 0.05 and finding.get("difference_interval", (0,))[0] > 0


def predicted_dependency_heads(word_attention: Tensor) -> NDArray[np.int64]:
    """Predict the head of each word from attention between words (H, W, W), (2, H, W).

    By the most attended word, and by the word that attends most; -1 if there is none, never itself.
    """
    size = word_attention.shape[-1]
    others = word_attention.masked_fill(
        torch.eye(size, dtype=torch.bool, device=word_attention.device), 0.0
    )
    most = [others.max(axis) for axis in (-1, -2)]
    return torch.stack([m.indices.where(m.values > 0, -1) for m in most]).cpu().numpy()
