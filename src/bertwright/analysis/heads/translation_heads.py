"""BLEU of translations without a head, and with one head per layer (Michel et al. 2019)."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim, significant_findings
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.requirements import missing_halves
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    StoredResult,
    adjust_p_values,
    interval_finding,
)
from bertwright.analysis.core.texts import AnalysedText
from bertwright.batches.noising.translation import Translation
from bertwright.core.significance import FloatArray, bootstrap_statistic, split_halves
from bertwright.encoder.decoder import Decoder
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.generated_text import BleuCounts, bleu, sentence_bleu_counts


@dataclass(frozen=True)
class TranslationProbe:
    """Text pairs: sources, translated to at most ``max_new_tokens`` tokens, and references."""

    model: AnalysedModel
    texts: Sequence[AnalysedText]
    max_new_tokens: int = 64

    def pairs(self) -> list[tuple[str, str]]:
        """Return the source and reference texts."""
        sources = [text.source for text in self.texts]
        return [(s.text, s.pair or "") for s in sources if isinstance(s, Example)]

    def translate(self) -> list[str]:
        """Translate every text with the model in its current state."""
        prompts = [first for first, _ in self.pairs()]
        translations = self.model.text_model.generate(
            prompts, temperature=0, max_new_tokens=self.max_new_tokens
        )
        return [translation.text for translation in translations]

    def bleu_counts(self) -> BleuCounts:
        """Return the BLEU counts of every text."""
        references = [second for _, second in self.pairs()]
        pairs = zip(self.translate(), references, strict=True)
        return np.stack([sentence_bleu_counts(*pair) for pair in pairs])


def missing_translation(inputs: AnalysisInput) -> str | None:
    """Require a model that translates, and pairs of texts."""
    objectives = inputs.model.text_model.model.recipe.objectives.values()
    if not any(isinstance(o.decoder_noising, Translation) for o in objectives):
        return "the model does not translate"
    if not isinstance(inputs.model.text_model.model.decoder, Decoder):
        return "its decoder is recurrent and has no heads"
    if not all(isinstance(text.source, Example) and text.source.pair for text in inputs.texts):
        return "it needs translations: give a file with a pair per line, separated by a tab"
    return None


ATTENTION_TAPS = {
    "encoder": "blocks.{}.attention.context",
    "cross-attention": "decoder.blocks.{}.cross_attention.context",
    "decoder": "decoder.blocks.{}.attention.context",
}
"""Kinds of attention, and the taps of their heads."""

FULL_BLEU = "BLEU with all heads"
ABLATED_BLEU_DIFFERENCE = "BLEU difference without the head"
SINGLE_HEAD_BLEU_DIFFERENCE = "BLEU difference with this head only"


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

    Also with a single head in a layer, selected on half of the texts and tested on the other half.
    Removed heads output zeros. Translations have at most ``max_new_tokens`` tokens.
    """

    kind: Literal["translation-heads"] = "translation-heads"
    max_new_tokens: int = Field(default=64, ge=1)
    survey_id = "B15"
    title = "What does a translation lose without a head, and with one head per layer?"
    source = "Michel et al. 2019"
    requires = (missing_halves("choose by"), missing_translation)
    claims = (
        Claim(
            "most heads can be removed, one at a time, without a significant loss",
            "all but 8 of 96 heads of the encoder",
            significant_findings(-1, "heads", ABLATED_BLEU_DIFFERENCE),
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
    plots = (
        *(
            HeatMap(
                f"BLEU difference without a head: {part}",
                lambda r, metric=f"{ABLATED_BLEU_DIFFERENCE}: {part}": r.values_by_head(metric),
                None,
            )
            for part in ATTENTION_TAPS
        ),
        LayerCurves(
            "BLEU difference to all heads",
            lambda r: {
                part: np.array(
                    [f["value"] for f in _findings(r, SINGLE_HEAD_BLEU_DIFFERENCE, part)]
                )
                for part in ATTENTION_TAPS
            },
            False,
            "layer with one head",
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        probe = TranslationProbe(inputs.model, inputs.texts, self.max_new_tokens)
        full = probe.bleu_counts()
        interval, _ = bootstrap_statistic(bleu, full, seed=inputs.seed)
        findings = [interval_finding(FULL_BLEU, interval)]
        arrays: dict[str, FloatArray] = {"full": full}
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


def _findings(result: StoredResult, metric: str, part: str) -> list[Mapping[str, Any]]:
    return [finding for finding in result.findings if finding["metric"] == f"{metric}: {part}"]


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of one of ``ATTENTION_TAPS``."""

    model: AnalysedModel
    part: str

    @property
    def shape(self) -> tuple[int, int]:
        """Number of layers and of heads per layer."""
        decoder = self.model.text_model.model.decoder
        assert isinstance(decoder, Decoder), "the decoder of a model that translates has heads"
        stack = self.model.encoder if self.part == "encoder" else decoder
        return stack.num_running_blocks, stack.num_heads

    def gate_head(
        self, head_index: tuple[int, ...], keep_only: bool
    ) -> AbstractContextManager[None]:
        """Remove a head, or with ``keep_only`` all other heads of its layer."""
        gate = torch.full((self.shape[1],), 0.0 if keep_only else 1.0)
        gate[head_index[1]] = 1.0 - gate[head_index[1]]
        scale = gate.to(self.model.text_model.model.embedding_table)[:, None, None]
        return self.model.encoder.gate({ATTENTION_TAPS[self.part].format(head_index[0]): scale})

    def bleu_counts(
        self, probe: TranslationProbe, head_index: tuple[int, ...], keep_only: bool
    ) -> BleuCounts:
        """Return the BLEU counts (N, ...) without the head, or with only that head in its layer."""
        with self.gate_head(head_index, keep_only):
            return probe.bleu_counts()


def _bleu_difference(
    metric: str,
    at: tuple[int, int],
    counts: BleuCounts,
    full_counts: BleuCounts,
    seed: int,
    **fields: Any,
) -> AnalysisFinding:
    """Return how BLEU differs with a head (layer, head) ablated from BLEU with all heads."""
    difference, p_value = bootstrap_statistic(bleu, counts, full_counts, seed=seed)
    baseline = BaselineValue("BLEU of all heads", float(bleu(full_counts.sum(0))))
    return interval_finding(metric, difference, *at, baseline, p_value=p_value, **fields)


def _ablation_findings(
    part: str,
    shape: tuple[int, int],
    ablated_counts: BleuCounts,
    full_counts: BleuCounts,
    seed: int,
) -> list[AnalysisFinding]:
    """Return a finding for every head, adjusted for the number of heads."""
    metric = f"{ABLATED_BLEU_DIFFERENCE}: {part}"
    return adjust_p_values(
        [
            _bleu_difference(metric, (layer, head), counts, full_counts, seed)
            for (layer, head), counts in zip(np.ndindex(shape), ablated_counts, strict=True)
        ]
    )


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
    metric = f"{SINGLE_HEAD_BLEU_DIFFERENCE}: {part}"
    return [
        _bleu_difference(
            metric,
            (layer, int(head)),
            single_head_counts[layer * shape[1] + head][test],
            full_counts[test],
            seed,
            num_tests=shape[0],
        )
        for layer, head in enumerate(scores.argmax(1))
    ]
