"""Which of five patterns a head's attention makes (Kovaleva et al. 2019)."""

from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.listening import Heard
from bertwright.significance import of_ratios

PATTERNS = ("vertical", "diagonal", "vertical and diagonal", "block", "heterogeneous")

COLUMNS = 3
"""The places that a vertical pattern looks at, at most."""


class AttentionPatterns(Listening):
    """The share of maps, one for every text and head, that make each pattern: by rules of our own
    (the paper has a network that was trained on maps told apart by hand).

    Attributes:
        diagonal: how much of attention goes to the place itself and those beside it.
        vertical: how much goes to the three places that are looked at most, above what an even head
            gives to three.
        block: how much goes to places of the same text of a pair, above what an even head gives.
    """

    kind: Literal["attention-patterns"] = "attention-patterns"
    diagonal: float = Field(default=0.5, gt=0, lt=1)
    vertical: float = Field(default=0.5, gt=0, lt=1)
    block: float = Field(default=0.35, gt=0, lt=1)
    number = "B1"
    group = "attention"
    question = "Which pattern does the attention of a head make?"
    source = "Kovaleva et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def listener(self, case: Case) -> "PatternsHeard":
        return PatternsHeard(case, self)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "fewer than two thirds of the maps make no simple pattern",
                "32 % (MRPC) to 61 % (QQP) of the maps of BERT-base",
                stored.of_all("share of heterogeneous"),
                2 / 3,
                "two thirds",
                "below",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        shares, grid = figure.subplots(1, 2)
        shares.bar(PATTERNS, stored.arrays["shares"].mean((0, 1)))
        shares.tick_params(axis="x", rotation=30)
        shares.set_ylabel("share of maps")
        picture = grid.imshow(stored.arrays["shares"].argmax(-1), vmin=0, vmax=len(PATTERNS) - 1)
        bar = figure.colorbar(picture, ax=grid, ticks=range(len(PATTERNS)))
        bar.ax.set_yticklabels(PATTERNS)
        grid.set_xlabel("head")
        grid.set_ylabel("layer")

    def classes(self, weights: Tensor, even: Tensor, lengths: Tensor, segment: Tensor) -> Tensor:
        """The number of the pattern (B, H) of maps (B, H, L, L), padding 0.

        ``even`` (B, 1 or H, L, L) is what an even head gives, ``segment`` (B, L) tells the texts of
        pairs apart, padding -1.
        """
        length = lengths[:, None]
        near = (
            sum(torch.diagonal(weights, offset, -2, -1).sum(-1) for offset in (-1, 0, 1)) / length
        )
        columns, expected = (
            (w.sum(2) / length[..., None]).topk(min(COLUMNS, w.shape[-1]), -1).values.sum(-1)
            for w in (weights, even)
        )
        same = (segment[:, :, None] == segment[:, None, :]) & (segment >= 0)[:, :, None]
        within, likely = ((w * same[:, None]).sum((-2, -1)) / length for w in (weights, even))
        paired = (segment.amax(1) > 0)[:, None]
        is_diagonal = near > self.diagonal
        is_vertical = columns - expected > self.vertical
        is_block = paired & (within - likely > self.block)
        found = torch.full(weights.shape[:2], PATTERNS.index("heterogeneous"))
        found[is_block] = PATTERNS.index("block")
        found[is_vertical] = PATTERNS.index("vertical")
        found[is_diagonal] = PATTERNS.index("diagonal")
        found[is_vertical & is_diagonal] = PATTERNS.index("vertical and diagonal")
        return found


class PatternsHeard:
    """The pattern of every map: (N, layers, heads)."""

    sites = AttentionPatterns.sites

    def __init__(self, case: Case, choice: AttentionPatterns) -> None:
        subject = case.subject
        self.choice, self.seed = choice, case.seed
        shape = (len(case.texts), subject.num_layers, subject.num_heads)
        self.classes = np.zeros(shape, np.int64)

    def hear(self, heard: Heard) -> None:
        """Tell the maps of a batch apart."""
        segment = heard.parts()
        for layer in range(self.classes.shape[1]):
            found = self.choice.classes(
                heard.attention(layer), heard.even(layer), heard.lengths, segment
            )
            self.classes[heard.numbers, layer] = found.cpu()

    def found(self) -> Found:
        """Shares over texts, of each head and of all."""
        told = self.classes[..., None] == np.arange(len(PATTERNS))
        number, layers, heads, patterns = told.shape
        by_head = of_ratios(told.reshape(number, -1).astype(np.float64), seed=self.seed)
        of_all = of_ratios(told.mean((1, 2)), seed=self.seed)
        findings = [
            Finding.over_texts(f"share of {name}", interval)
            for name, interval in zip(PATTERNS, of_all, strict=True)
        ]
        findings += [
            Finding.over_texts(f"share of {PATTERNS[at[2]]}", interval, at[0], at[1])
            for at, interval in zip(np.ndindex(layers, heads, patterns), by_head, strict=True)
        ]
        return Found(findings, {"shares": told.mean(0)})
