"""Which of five patterns the attention of a head forms (Kovaleva et al. 2019)."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars, HeatMap
from bertwright.analysis.core.result import AnalysisResult, Findings

PATTERNS = ("vertical", "diagonal", "vertical and diagonal", "block", "heterogeneous")

NUM_VERTICAL_COLUMNS = 3
"""Maximum number of keys in a vertical pattern."""


class AttentionPatterns(StreamingAnalysis):
    """The fraction of attention maps, one per text and head, that form each pattern.

    The rules are our own; the paper trains a network on maps labelled by hand.

    Attributes:
        diagonal_threshold: Minimum attention to the position itself and its neighbours.
        vertical_threshold: Minimum attention to the three most attended keys, in excess of uniform
            attention.
        block_threshold: Minimum attention within the same text of a pair, in excess of uniform
            attention.
    """

    kind: Literal["attention-patterns"] = "attention-patterns"
    diagonal_threshold: float = Field(default=0.5, gt=0, lt=1)
    vertical_threshold: float = Field(default=0.5, gt=0, lt=1)
    block_threshold: float = Field(default=0.35, gt=0, lt=1)
    survey_id = "B1"
    title = "Which pattern does the attention of a head form?"
    source = "Kovaleva et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "fewer than two thirds of the maps form no simple pattern",
            "32 % (MRPC) to 61 % (QQP) of the maps of BERT-base",
            "fraction heterogeneous",
            2 / 3,
            "two thirds",
            "below",
        ),
    )
    plots = (
        FindingBars("fraction of maps", tuple(f"fraction {name}" for name in PATTERNS)),
        HeatMap("fraction heterogeneous", lambda r: r.arrays["fractions"][..., -1]),
    )

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        segment_ids = batch.segment_ids()
        patterns = [
            self.classify_maps(
                batch.attention(layer), batch.uniform_attention(layer), batch.lengths, segment_ids
            )
            for layer in range(inputs.model.num_layers)
        ]
        return {"patterns": torch.stack(patterns, 1).numpy()}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        is_pattern = np.array(measured["patterns"])[..., None] == np.arange(len(PATTERNS))
        metrics = [f"fraction {name}" for name in PATTERNS]
        findings = Findings(inputs.seed)
        for number, metric in enumerate(metrics):
            findings.add_ratio(metric, is_pattern[..., number].mean((1, 2)))
        findings.add_by_head(metrics, is_pattern.astype(np.float64))
        return AnalysisResult(findings, {"fractions": is_pattern.mean(0)})

    def classify_maps(
        self, weights: Tensor, uniform: Tensor, lengths: Tensor, segment_ids: Tensor
    ) -> Tensor:
        """Return the pattern indices (B, H) of maps (B, H, L, L), 0 for padding.

        ``uniform`` is (B, 1 or H, L, L), ``segment_ids`` (B, L) is -1 for padding.
        """
        length = lengths[:, None]
        neighbours = (
            sum(torch.diagonal(weights, offset, -2, -1).sum(-1) for offset in (-1, 0, 1)) / length
        )
        columns, expected = (
            (w.sum(2) / length[..., None])
            .topk(min(NUM_VERTICAL_COLUMNS, w.shape[-1]), -1)
            .values.sum(-1)
            for w in (weights, uniform)
        )
        same = (segment_ids[:, :, None] == segment_ids[:, None, :]) & (segment_ids >= 0)[:, :, None]
        within, expected_within = (
            (w * same[:, None]).sum((-2, -1)) / length for w in (weights, uniform)
        )
        paired = (segment_ids.amax(1) > 0)[:, None]
        is_diagonal = neighbours > self.diagonal_threshold
        is_vertical = columns - expected > self.vertical_threshold
        is_block = paired & (within - expected_within > self.block_threshold)
        patterns = torch.full(weights.shape[:2], PATTERNS.index("heterogeneous"))
        patterns[is_block] = PATTERNS.index("block")
        patterns[is_vertical] = PATTERNS.index("vertical")
        patterns[is_diagonal] = PATTERNS.index("diagonal")
        patterns[is_vertical & is_diagonal] = PATTERNS.index("vertical and diagonal")
        return patterns
