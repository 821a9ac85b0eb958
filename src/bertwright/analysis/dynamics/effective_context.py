"""How much context a model uses (Khandelwal et al. 2018; Dai et al. 2019)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_lm_head
from bertwright.analysis.core.result import AnalysisFinding, AnalysisResult, Findings
from bertwright.core.rng import stream_key
from bertwright.core.significance import bootstrap_difference
from bertwright.models.scoring.likelihood import cloze_log_probabilities, token_log_probabilities

MIN_GAIN = 0.01
"""Minimum gain from a doubled context in nats, at the lower end of its interval."""

FULL_GAIN = "gain of the longest context over 1 token"


class EffectiveContext(Analysis):
    """The loss of the last token, given only the N preceding tokens, for N = 1, 2, 4, ...

    N is at most ``max_context``. The effective context is the longest one that gains over half of
    it. ``positions_per_text`` positions are drawn from every text that is long enough.
    """

    kind: Literal["effective-context"] = "effective-context"
    max_context: int = Field(default=64, ge=2)
    positions_per_text: int = Field(default=4, ge=1)
    survey_id = "B45"
    title = "How much context does a model use?"
    source = "Khandelwal et al. 2018; Dai et al. 2019"
    requires = (missing_lm_head,)
    claims = (
        Claim(
            "more context helps",
            "up to 900 words in Transformer-XL, 500 in a recurrent network",
            FULL_GAIN,
            0.0,
            "none",
        ),
    )
    plots = (
        LayerCurves(
            "loss, nats",
            lambda r: {"loss": r.arrays["losses"].sum(1) / r.arrays["num_targets"].sum()},
            xlabel="context tokens, as a power of 2",
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        longest = self._context_lengths(inputs)[-1]
        has_long_texts = any(len(text) - 2 > longest for text in inputs.texts)
        missing = None if has_long_texts else f"it needs texts of more than {longest} tokens"
        return super().not_applicable(inputs) or missing

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        contexts, model = self._context_lengths(inputs), inputs.model.text_model.model
        special = inputs.model.tokenizer.special_tokens
        targets: list[tuple[int, list[int]]] = []
        generator = np.random.default_rng(stream_key(inputs.seed, "effective context"))
        for number, text in enumerate(inputs.texts):
            tokens = text.token_ids[1:-1]
            positions = np.arange(contexts[-1], len(tokens))
            sample = generator.permutation(positions)[: self.positions_per_text]
            targets += [(number, tokens[last - contexts[-1] : last + 1]) for last in sample]
        numbers = np.array([number for number, _ in targets])
        names, text_ids = np.unique(numbers, return_inverse=True)
        num_targets = np.bincount(text_ids).astype(np.float64)
        losses = np.zeros((len(contexts), len(names)))
        for index, context in enumerate(contexts):
            sequences = [[special.start, *tokens[-context - 1 :]] for _, tokens in targets]
            if inputs.model.text_model.is_causal:
                by_sequence = token_log_probabilities(model, sequences, special.pad)
                scores = [of_tokens[-1] for of_tokens in by_sequence]
            else:
                sequences = [[*tokens, special.end] for tokens in sequences]
                spans = [slice(len(tokens) - 2, len(tokens) - 1) for tokens in sequences]
                by_sequence = cloze_log_probabilities(
                    model, inputs.model.tokenizer, sequences, spans
                )
                scores = [of_span[0] for of_span in by_sequence]
            losses[index] = np.bincount(text_ids, -np.array(scores))
        findings = Findings(inputs.seed)
        effective = 0
        for context, loss in zip(contexts, losses, strict=True):
            findings.add_ratio(f"loss with {context} context tokens", loss, num_targets)
        for number, context in enumerate(contexts[:-1]):
            gain = bootstrap_difference(
                (losses[number], num_targets), (losses[number + 1], num_targets), seed=inputs.seed
            )
            metric = f"gain of {contexts[number + 1]} tokens over {context}"
            findings.add_interval(metric, gain)
            if gain.low > MIN_GAIN:
                effective = contexts[number + 1]
        findings.append(AnalysisFinding("effective context, tokens", effective))
        findings.add_difference(FULL_GAIN, (losses[0], num_targets), (losses[-1], num_targets))
        arrays = {"contexts": np.array(contexts), "losses": losses, "num_targets": num_targets}
        return AnalysisResult(findings, arrays)

    def _context_lengths(self, inputs: AnalysisInput) -> list[int]:
        limit = inputs.model.encoder.max_length
        longest = min(self.max_context, limit - 3 if limit else self.max_context)
        return [1 << power for power in range(longest.bit_length())]
