"""Attention weighed with what it brings (Kobayashi et al. 2020).

A head writes the sum over places j of A_ij f(x_j). A place may be looked at much and bring nothing:
what counts is the length of A_ij f(x_j).
"""

from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.attention.shares import TARGETS, halves_of, shares
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.identifiability.effective import head_outputs, lacks_head_outputs
from bertwright.analysis.listening import Heard
from bertwright.significance import of_difference, of_ratio, of_ratios

LESS = "separator, second half, by weight less by length"


class AttentionNorms(Listening):
    """Where attention goes if each weight counts as much as the vector that it brings is long; and
    whether heads look at what is short, by Spearman's correlation of the mean weight that a place
    gets with the length of what it brings."""

    kind: Literal["attention-norms"] = "attention-norms"
    number = "B14"
    group = "identifiability"
    question = "Where does attention go if what it brings is counted?"
    source = "Kobayashi et al. 2020"
    sites = ("blocks.*.attention.weights", "blocks.*.attention.value")

    def lacks(self, case: Case) -> str | None:
        return super().lacks(case) or lacks_head_outputs(case.subject)

    def listener(self, case: Case) -> "NormsHeard":
        return NormsHeard(case)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "separators get less of the second half by length than by weight",
                "the peak of BERT-base at separators goes away",
                stored.of_all(LESS),
                0.0,
                "alike",
            ),
            concluded(
                "heads look at places that bring short vectors",
                "weights and lengths are against each other in BERT-base",
                stored.of_all("correlation of weight and length"),
                0.0,
                "none",
                "below",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        by_target, spread = figure.subplots(1, 2)
        layers = np.arange(1, 1 + stored.arrays["weight"].shape[0])
        for number, target in enumerate(TARGETS[:3]):
            for name, style in (("weight", "-"), ("length", ":")):
                means = stored.arrays[name][..., number].mean(1)
                by_target.plot(layers, means, style, color=f"C{number}", label=f"{target}, {name}")
        by_target.set_xlabel("layer")
        by_target.set_ylabel("share of attention")
        by_target.legend()
        spread.hist(stored.arrays["correlations"].mean(0).ravel(), bins=30)
        spread.set_xlabel("correlation of weight and length, by head")


class NormsHeard:
    """Of every text the shares by weight and by length, (N, layers, heads, targets)."""

    sites = AttentionNorms.sites

    def __init__(self, case: Case) -> None:
        self.subject, self.seed = case.subject, case.seed
        shape = (len(case.texts), case.subject.num_layers, case.subject.num_heads)
        self.by_weight, self.by_length = (np.zeros((*shape, len(TARGETS))) for _ in range(2))
        self.correlations = np.zeros(shape)

    def hear(self, heard: Heard) -> None:
        """Weigh the attention of a batch."""
        marks = [heard.marked(mark) for mark in ("opening", "separator", "punctuation")]
        columns, sizes = torch.stack(marks, -1), heard.lengths
        for layer in range(self.correlations.shape[1]):
            parts = head_outputs(self.subject, layer)
            weights = heard.attention(layer)
            lengths = (heard.of(layer, "attention.value").double() @ parts).norm(dim=-1)
            brought = weights * lengths[..., None, :].to(weights)
            brought = brought / brought.sum(-1, keepdim=True).clamp(min=1e-30)
            self.by_weight[heard.numbers, layer] = shares(weights, columns, sizes)
            self.by_length[heard.numbers, layer] = shares(brought, columns, sizes)
            received = weights.sum(2)
            for row, number in enumerate(heard.numbers):
                of = slice(len(heard.texts[row]))
                self.correlations[number, layer] = [
                    _spearman(a, b)
                    for a, b in zip(
                        received[row, :, of].cpu().numpy(),
                        lengths[row, :, of].cpu().numpy(),
                        strict=True,
                    )
                ]

    def found(self) -> Found:
        """Means over texts."""
        number, layers, heads, targets = self.by_length.shape
        weight = self.by_weight.mean(0)
        intervals = of_ratios(self.by_length.reshape(number, -1), seed=self.seed)
        findings = [
            Finding.over_texts(
                f"by length, {TARGETS[at[2]]}",
                interval,
                at[0],
                at[1],
                Baseline("by weight", float(weight[at])),
            )
            for at, interval in zip(np.ndindex(layers, heads, targets), intervals, strict=True)
        ]
        second = halves_of(layers)["second half"]
        by_weight, by_length = (
            own[:, second, :, TARGETS.index("separator")].mean((1, 2))
            for own in (self.by_weight, self.by_length)
        )
        ones = np.ones(number)
        less = of_difference((by_weight, ones), (by_length, ones), seed=self.seed)
        findings.append(Finding.over_texts(LESS, less))
        against = of_ratio(self.correlations.mean((1, 2)), seed=self.seed)
        findings.append(Finding.over_texts("correlation of weight and length", against))
        arrays = {
            "weight": weight,
            "length": self.by_length.mean(0),
            "correlations": self.correlations,
        }
        return Found(findings, arrays)


def _spearman(first: NDArray[Any], second: NDArray[Any]) -> float:
    """0 where one of them does not vary."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    found: Any = stats.spearmanr(first, second)
    return float(found.statistic)
