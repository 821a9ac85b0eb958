"""Heads that attend from a word to its syntactic head (Clark et al. 2019, section 4.2)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import (
    AnalysisResult,
    BaselineValue,
    Findings,
    StoredResult,
    adjust_p_values,
    interval_bounds,
)
from bertwright.core.significance import bootstrap_difference, sign_flip_test, split_halves
from bertwright.tasks.formats.dependency_trees import DependencyTree

DIRECTIONS = ("attends to its head", "is attended to by its head")

OFFSETS = tuple(offset for offset in range(-5, 6) if offset)
"""Fixed offsets from a dependent to its head; the baseline predicts the best one."""

PUBLISHED_ACCURACIES = {
    "det": "94.3 % and 51.7 %",
    "mark": "50.7 % and 14.5 %",
    "obj": "86.8 % and 40.0 %",
}
"""Accuracies of BERT-base on the Wall Street Journal: best head and best offset."""


def _num_significant(result: StoredResult) -> Mapping[str, Any]:
    number = sum(map(is_significantly_better, result.findings))
    return result.counted_finding(number, len(result.findings), "relations")


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
    fixed offset. Both are selected on half of the sentences and tested on the other half. Relations
    with fewer than ``min_words`` words there are skipped; subtypes are not distinguished.
    """

    kind: Literal["relation-heads"] = "relation-heads"
    min_words: int = Field(default=20, ge=1)
    survey_id = "B6"
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

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        relations = _relations(inputs)
        shape = (len(batch.texts), inputs.model.num_layers, inputs.model.num_heads)
        num_correct = np.zeros((*shape, len(DIRECTIONS), len(relations)), np.int16)
        num_words = np.zeros((len(batch.texts), len(relations)), np.int64)
        by_offset = np.zeros((len(batch.texts), len(OFFSETS), len(relations)), np.int64)
        weights = [batch.attention(layer) for layer in range(inputs.model.num_layers)]
        for index, text in enumerate(batch.texts):
            size, tree = len(text.words), text.source
            if not isinstance(tree, DependencyTree):
                continue
            links = [
                (word, head, relations.index(relation))
                for word, (head, relation) in enumerate(
                    zip(tree.heads[:size], tree.relations[:size], strict=True)
                )
                if 0 <= head < size and relation in relations
            ]
            if not links:
                continue
            words, heads, kinds = np.array(links).T
            np.add.at(num_words[index], kinds, 1)
            for counts, offset in zip(by_offset[index], OFFSETS, strict=True):
                np.add.at(counts, kinds, words + offset == heads)
            for layer, layer_weights in enumerate(weights):
                between = batch.word_attention(index, layer_weights[index])
                is_correct = predicted_dependency_heads(between)[..., words] == heads
                for direction, head in np.ndindex(is_correct.shape[:2]):
                    counts = num_correct[index, layer, head, direction]
                    np.add.at(counts, kinds, is_correct[direction, head])
        return {"num_correct": num_correct, "num_words": num_words, "by_offset": by_offset}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        all_correct, all_words, all_by_offset = (
            np.array(measured[name]) for name in ("num_correct", "num_words", "by_offset")
        )
        train, test = split_halves(len(all_words), inputs.seed)
        findings = Findings(inputs.seed)
        for number, relation in enumerate(_relations(inputs)):
            sentences = test[all_words[test, number] > 0]
            num_words = all_words[sentences, number]
            if num_words.sum() < self.min_words or not all_words[train, number].any():
                continue
            by_head = all_correct[train, ..., number].sum(0, dtype=np.int64)
            layer, head, direction = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
            offset = int(all_by_offset[train, :, number].sum(0).argmax())
            correct = all_correct[sentences, layer, head, direction, number].astype(np.int64)
            by_offset = all_by_offset[sentences, offset, number]
            difference = bootstrap_difference(
                (correct, num_words), (by_offset, num_words), seed=inputs.seed
            )
            findings.add_ratio(
                f"accuracy of {relation}",
                correct,
                num_words,
                layer=layer,
                head=head,
                baseline=BaselineValue(
                    f"the word at {OFFSETS[offset]:+d}", by_offset.sum() / num_words.sum()
                ),
                p_value=sign_flip_test(correct - by_offset, seed=inputs.seed),
                difference_interval=interval_bounds(difference),
                note=DIRECTIONS[direction],
            )
        return AnalysisResult(
            adjust_p_values(findings),
            {"num_correct": all_correct.sum(0, dtype=np.int64), "num_words": all_words.sum(0)},
        )


def _relations(inputs: AnalysisInput) -> list[str]:
    """Return the relations of all trees, sorted."""
    trees = [text.source for text in inputs.texts if isinstance(text.source, DependencyTree)]
    return sorted({name for tree in trees for name in tree.relations} - {"root", "punct"})


def is_significantly_better(finding: Mapping[str, Any]) -> bool:
    """Return True if a finding is above its baseline, significantly after adjustment."""
    return finding["adjusted_p_value"] < 0.05 and finding.get("difference_interval", (0,))[0] > 0


def predicted_dependency_heads(word_attention: Tensor) -> NDArray[np.int64]:
    """Predict the head of each word, (2, H, W), from attention between words (H, W, W).

    The two predictions are the most attended word and the word that attends most; -1 if there is
    none. A word is never its own head.
    """
    size = word_attention.shape[-1]
    others = word_attention.masked_fill(
        torch.eye(size, dtype=torch.bool, device=word_attention.device), 0.0
    )
    most = [others.max(axis) for axis in (-1, -2)]
    return torch.stack([m.indices.where(m.values > 0, -1) for m in most]).cpu().numpy()
