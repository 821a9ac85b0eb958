"""BLEU of a translation without a head, and with one head per layer (Michel et al. 2019)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput, ReportTable
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    StoredResult,
    interval_finding,
)
from bertwright.analysis.core.texts import missing_halves
from bertwright.analysis.heads.translation_probe import BleuCounts, TranslationProbe, bleu
from bertwright.core.significance import benjamini_hochberg, bootstrap_statistic, split_halves

ATTENTION_TAPS = {
    "encoder": "blocks.{}.attention.context",
    "cross-attention": "decoder.blocks.{}.cross_attention.context",
    "decoder": "decoder.blocks.{}.attention.context",
}
"""The kinds of attention, and the taps of their heads."""

FULL_BLEU = "BLEU with all heads"
ABLATED_BLEU_DIFFERENCE = "BLEU difference without the head"
SINGLE_HEAD_BLEU_DIFFERENCE = "BLEU difference with this head only"


def _fraction_needed(result: StoredResult) -> Mapping[str, Any]:
    ablated = (_findings(result, ABLATED_BLEU_DIFFERENCE, part) for part in ATTENTION_TAPS)
    is_worse = [f["adjusted_p_value"] < 0.05 and f["value"] < 0 for fs in ablated for f in fs]
    return result.computed_finding(float(np.mean(is_worse)))


def _worst_difference(result: StoredResult) -> Mapping[str, Any]:
    worst = {
        part: min(f["value"] for f in _findings(result, SINGLE_HEAD_BLEU_DIFFERENCE, part))
        for part in ATTENTION_TAPS
    }
    others = min(worst["encoder"], worst["decoder"])
    baseline = {"name": "the worst layer of the others", "value": others}
    return {**result.computed_finding(worst["cross-attention"]), "baseline": baseline}


class TranslationHeads(Analysis):
    """BLEU without each head of the encoder, the decoder and cross-attention.

    And with a single head in a layer, chosen on half of the texts and tested on the other half.
    Removed heads output zeros. Translations end after ``max_new_tokens``.
    """

    kind: Literal["translation-heads"] = "translation-heads"
    max_new_tokens: int = Field(default=64, ge=1)
    survey_id = "B15"
    group = "heads"
    title = "What does a translation lose without a head, and with one head per layer?"
    source = "Michel et al. 2019"
    claims = (
        Claim(
            "most heads can be removed, one at a time, without a significant loss",
            "all but 8 of 96 heads of the encoder",
            _fraction_needed,
            0.5,
            "half of them",
            "below",
        ),
        Claim(
            "cross-attention suffers most from keeping one head in a layer",
            "13.6 BLEU are lost in the last layer, elsewhere at most 1.6",
            _worst_difference,
            None,
            direction="below",
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        reason = missing_halves(inputs.texts, "choose by")
        return reason or TranslationProbe(inputs.model, inputs.texts).not_applicable()

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        probe = TranslationProbe(inputs.model, inputs.texts, self.max_new_tokens)
        full = probe.bleu_counts()
        findings = [_full_finding(full, inputs.seed)]
        arrays: dict[str, NDArray[np.float64]] = {"full": full}
        for part in ATTENTION_TAPS:
            heads = AttentionHeads(inputs.model, part)
            ablated, single = (
                np.stack([heads.bleu_counts(probe, at, keep) for at in np.ndindex(heads.shape)])
                for keep in (False, True)
            )
            arrays |= {f"{part}, without": ablated, f"{part}, only": single}
            findings += _ablation_findings(part, heads.shape, ablated, full, inputs.seed)
            findings += _single_head_findings(part, heads.shape, single, full, inputs.seed)
        return AnalysisResult(findings, arrays)

    def tables(self, result: StoredResult) -> list[ReportTable]:
        full = f"{result.overall_finding(FULL_BLEU)['value']:.1f}"
        rows: list[dict[str, object]] = []
        for part in ATTENTION_TAPS:
            findings = _findings(result, ABLATED_BLEU_DIFFERENCE, part)
            for layer in sorted({f["layer_from_1"] for f in findings}):
                cells = {
                    str(f["head_from_1"]): _format_difference(f)
                    for f in findings
                    if f["layer_from_1"] == layer
                }
                rows.append({"part": part, "layer": layer, **cells})
        heads = {key: f"head {key}" for key in rows[0] if key.isdigit()}
        single = {
            (part, f["layer_from_1"]): _format_difference(f)
            for part in ATTENTION_TAPS
            for f in _findings(result, SINGLE_HEAD_BLEU_DIFFERENCE, part)
        }
        layers = sorted({layer for _, layer in single})
        note = f"BLEU difference to all heads ({full}; * significant)"
        return [
            ReportTable(
                f"{note}, without one head:", {"part": "", "layer": "layer", **heads}, rows
            ),
            ReportTable(
                f"{note}, with one head only in a layer:",
                {"layer": "layer", **{part: part for part in ATTENTION_TAPS}},
                [
                    {"layer": layer, **{part: single.get((part, layer)) for part in ATTENTION_TAPS}}
                    for layer in layers
                ],
            ),
        ]

    def plot(self, result: StoredResult, figure: Figure) -> None:
        grids = figure.subplots(1, len(ATTENTION_TAPS) + 1)
        differences = {
            part: result.values_by_head(f"{ABLATED_BLEU_DIFFERENCE}: {part}")
            for part in ATTENTION_TAPS
        }
        limit = max(float(np.abs(values).max()) for values in differences.values())
        for axes, (part, values) in zip(grids[:-1], differences.items(), strict=True):
            axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit)
            axes.set_title(f"without a head: {part}", fontsize=8)
            axes.set_xlabel("head")
            axes.set_ylabel("layer")
        figure.colorbar(grids[0].images[0], ax=grids[:-1], label="BLEU")
        for part in ATTENTION_TAPS:
            findings = _findings(result, SINGLE_HEAD_BLEU_DIFFERENCE, part)
            layers, values = ([f[name] for f in findings] for name in ("layer_from_1", "value"))
            grids[-1].plot(layers, values, marker="o", label=part)
        grids[-1].axhline(0, linestyle=":", color="grey")
        grids[-1].legend(fontsize=8)
        grids[-1].set_xlabel("layer with one head")
        grids[-1].set_ylabel("BLEU difference to all heads")


def _findings(result: StoredResult, metric: str, part: str) -> list[Mapping[str, Any]]:
    return [finding for finding in result.findings if finding["metric"] == f"{metric}: {part}"]


def _format_difference(finding: Mapping[str, Any]) -> str:
    """Format a difference, with a star if it is significant: adjusted, or by its interval."""
    low, high = finding["interval"]
    adjusted = finding.get("adjusted_p_value")
    is_significant = low > 0 or high < 0 if adjusted is None else adjusted < 0.05
    return f"{finding['value']:+.1f}{'*' * is_significant}"


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of one of ``ATTENTION_TAPS``."""

    model: AnalysedModel
    part: str

    @property
    def shape(self) -> tuple[int, int]:
        """Number of layers, and of heads per layer."""
        decoder = self.model.text_model.model.decoder
        assert decoder is not None, "a model that translates has a decoder"
        stack = self.model.encoder if self.part == "encoder" else decoder
        return stack.num_running_blocks, stack.num_heads

    def gate_head(
        self, head_index: tuple[int, ...], keep_only: bool
    ) -> AbstractContextManager[None]:
        """Remove a head, or with ``keep_only`` all others of its layer."""
        gate = torch.full((self.shape[1],), 0.0 if keep_only else 1.0)
        gate[head_index[1]] = 1.0 - gate[head_index[1]]
        scale = gate.to(self.model.text_model.model.embedding_table)[:, None, None]
        return self.model.encoder.gate({ATTENTION_TAPS[self.part].format(head_index[0]): scale})

    def bleu_counts(
        self, probe: TranslationProbe, head_index: tuple[int, ...], keep_only: bool
    ) -> BleuCounts:
        """Return the BLEU counts (N, ...) with the head removed or alone."""
        with self.gate_head(head_index, keep_only):
            return probe.bleu_counts()


def _full_finding(full_counts: BleuCounts, seed: int) -> AnalysisFinding:
    return interval_finding(FULL_BLEU, bootstrap_statistic(bleu, full_counts, seed=seed)[0])


def _ablation_findings(
    part: str,
    shape: tuple[int, int],
    ablated_counts: BleuCounts,
    full_counts: BleuCounts,
    seed: int,
) -> list[AnalysisFinding]:
    """Return a finding for every head, tested for all of them at once."""
    tests = [bootstrap_statistic(bleu, counts, full_counts, seed=seed) for counts in ablated_counts]
    adjusted = benjamini_hochberg([p_value for _, p_value in tests])
    baseline = BaselineValue("BLEU of all heads", float(bleu(full_counts.sum(0))))
    return [
        replace(
            interval_finding(
                f"{ABLATED_BLEU_DIFFERENCE}: {part}", difference, at[0], at[1], baseline
            ),
            p_value=p_value,
            adjusted_p_value=float(adjusted_p_value),
            num_tests=len(tests),
        )
        for at, (difference, p_value), adjusted_p_value in zip(
            np.ndindex(shape), tests, adjusted, strict=True
        )
    ]


def _single_head_findings(
    part: str,
    shape: tuple[int, int],
    single_head_counts: BleuCounts,
    full_counts: BleuCounts,
    seed: int,
) -> list[AnalysisFinding]:
    """Return a finding for the best head of every layer."""
    train, test = split_halves(len(full_counts), seed)
    scores = bleu(single_head_counts[:, train].sum(1)).reshape(shape)
    baseline = BaselineValue("BLEU of all heads", float(bleu(full_counts[test].sum(0))))
    findings: list[AnalysisFinding] = []
    for layer, head in enumerate(scores.argmax(1)):
        counts = single_head_counts[layer * shape[1] + head]
        difference, p_value = bootstrap_statistic(bleu, counts[test], full_counts[test], seed=seed)
        finding = interval_finding(
            f"{SINGLE_HEAD_BLEU_DIFFERENCE}: {part}", difference, layer, int(head), baseline
        )
        findings.append(replace(finding, p_value=p_value, num_tests=shape[0]))
    return findings
