"""How many places a head looks at (Clark et al. 2019)."""

from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.attention.shares import halves_of
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard
from bertwright.significance import of_ratio, of_ratios

SMOOTHING = 1e-4
"""The share of an even head that is mixed into every row, as in the released code."""


class AttentionEntropy(Listening):
    """The entropy of attention in nats, in the mean over places and of the first place alone, held
    against that of a head that looks alike at all that it may see (section 3.3)."""

    kind: Literal["attention-entropy"] = "attention-entropy"
    number = "B4"
    group = "attention"
    question = "How broadly do heads look?"
    source = "Clark et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def listener(self, case: Case) -> "EntropyHeard":
        return EntropyHeard(case)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "heads of the first half look more broadly than those of the second",
                "some heads of the lowest layers of BERT-base are nearly even",
                stored.of_all("entropy, first half less second"),
                0.0,
                "alike",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        for axes, metric in zip(figure.subplots(1, 2, sharey=True), METRICS, strict=True):
            found = stored.grid(metric)
            layers = np.arange(1, len(found) + 1)
            axes.scatter(np.repeat(layers, found.shape[1]), found.ravel(), s=8)
            axes.plot(layers, found.mean(1), label="mean of the layer")
            axes.axhline(float(stored.arrays["even"].mean()), linestyle=":", label="even")
            axes.set_title(metric)
            axes.set_xlabel("layer")
            axes.legend()
        figure.supylabel("nats")


METRICS = ("entropy", "entropy of the first place")


class EntropyHeard:
    """Of every text: (N, layers, heads, 2), and of an even head."""

    sites = AttentionEntropy.sites

    def __init__(self, case: Case) -> None:
        subject = case.subject
        shape = (len(case.texts), subject.num_layers, subject.num_heads, len(METRICS))
        self.entropies, self.even = np.zeros(shape), np.zeros(shape)
        self.seed = case.seed

    def hear(self, heard: Heard) -> None:
        """Take the means of a batch."""
        for layer in range(self.entropies.shape[1]):
            even = heard.even(layer)
            for into, weights in ((self.entropies, heard.attention(layer)), (self.even, even)):
                rows = entropy((1 - SMOOTHING) * weights + SMOOTHING * even)
                mean = rows.sum(-1) / heard.lengths[:, None]
                into[heard.numbers, layer] = torch.stack((mean, rows[..., 0]), -1).cpu()

    def found(self) -> Found:
        """The means over texts."""
        number, layers, heads, metrics = self.entropies.shape
        intervals = of_ratios(self.entropies.reshape(number, -1), seed=self.seed)
        even = self.even.mean(0)
        findings = [
            Finding.over_texts(
                METRICS[at[2]], interval, at[0], at[1], Baseline("even", float(even[at]))
            )
            for at, interval in zip(np.ndindex(layers, heads, metrics), intervals, strict=True)
        ]
        first, second = (
            self.entropies[:, half, :, 0].mean((1, 2)) for half in halves_of(layers).values()
        )
        lead = of_ratio(first - second, seed=self.seed)
        findings.append(Finding.over_texts("entropy, first half less second", lead))
        return Found(findings, {"entropies": self.entropies.mean(0), "even": even})


def entropy(weights: Tensor) -> Tensor:
    """Of the last axis, in nats; what is 0 adds nothing."""
    return -torch.special.xlogy(weights, weights).sum(-1)
