"""How much context a model uses (Khandelwal et al. 2018; Dai et al. 2019)."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_lm_head
from bertwright.analysis.core.result import AnalysisFinding, AnalysisResult, Findings
from bertwright.analysis.dynamics.relative_context import (
    relative_context_length,
    relative_gains,
    relative_loss_sums,
)
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray, bootstrap_difference, bootstrap_statistic
from bertwright.models.scoring.likelihood import cloze_log_probabilities, token_log_probabilities

MIN_GAIN = 0.01
"""Minimum gain from a doubled context in nats, at the lower end of its interval."""

FULL_GAIN = "gain of the longest context over 1 token"

HARD_FRACTIONS = (0.1, 0.5, 1.0)
"""Fractions of the targets with the largest losses, as published."""

RELATIVE_CONTEXT = "relative effective context, tokens"
OTHER_MODEL = "of the other model"


def relative_metric(hard_fraction: float, of: str = "") -> str:
    """Return the metric of a relative effective context length."""
    return ", ".join(filter(None, (RELATIVE_CONTEXT, of, f"r={hard_fraction}")))


class EffectiveContext(Analysis):
    """The loss of the last token, given only the N preceding tokens, for N = 1, 2, 4, ...

    N is at most ``max_context``. The effective context is the longest one that gains over half of
    it. ``positions_per_text`` positions are drawn from every text that is long enough.

    The relative effective context (RECL) is that of a group of models: of this model and, if they
    share their tokenizer, the other model. It is the first context whose double lowers the
    perplexity by less than 1 %, compared with the best model of the group on each token, over the
    fraction r of the tokens that are hardest with that context. As published, except that context
    lengths double instead of growing by a fixed step.
    """

    kind: Literal["effective-context"] = "effective-context"
    max_context: int = Field(default=64, ge=2)
    positions_per_text: int = Field(default=4, ge=1)
    survey_id = "B45"
    title = "How much context does a model use?"
    source = "Khandelwal et al. 2018; Dai et al. 2019"
    compares_models = True
    requires = (missing_lm_head,)
    claims = (
        Claim(
            "more context helps",
            "up to 900 words in Transformer-XL, 500 in a recurrent network",
            FULL_GAIN,
            0.0,
            "none",
        ),
        Claim(
            "the relative effective context is longer than that of the other model",
            "900 words in Transformer-XL, 500 and 400 in recurrent networks; 700 and 128 in a "
            "Transformer",
            relative_metric(HARD_FRACTIONS[0], f"minus that {OTHER_MODEL}"),
            is_optional=True,
        ),
    )
    plots = (
        LayerCurves(
            "loss, nats",
            lambda r: {"loss": r.arrays["losses"].sum(1) / r.arrays["num_targets"].sum()},
            xlabel="context tokens, as a power of 2",
        ),
        LayerCurves(
            "relative gain of twice the context, r = 0.1",
            lambda r: {
                name: r.arrays[name]
                for name in ("relative gains", f"relative gains {OTHER_MODEL}")
                if name in r.arrays
            },
            xlabel="context tokens, as a power of 2",
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        longest = self._context_lengths(inputs)[-1]
        has_long_texts = any(len(text) - 2 > longest for text in inputs.texts)
        missing = None if has_long_texts else f"it needs texts of more than {longest} tokens"
        return super().not_applicable(inputs) or missing

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        contexts = self._context_lengths(inputs)
        targets: list[tuple[int, list[int]]] = []
        generator = np.random.default_rng(stream_key(inputs.seed, "effective context"))
        for number, text in enumerate(inputs.texts):
            of_words = np.flatnonzero(text.word_ids >= 0)
            tokens = text.token_ids[of_words[0] : of_words[-1] + 1]
            positions = np.arange(contexts[-1], len(tokens))
            sample = generator.permutation(positions)[: self.positions_per_text]
            targets += [(number, tokens[last - contexts[-1] : last + 1]) for last in sample]
        numbers = np.array([number for number, _ in targets])
        _, text_ids = np.unique(numbers, return_inverse=True)
        num_targets = np.bincount(text_ids).astype(np.float64)
        of_targets = np.array(
            [
                context_losses(model, [tokens for _, tokens in targets], contexts)
                for model in comparable_models(inputs)
            ]
        )
        losses = np.array([np.bincount(text_ids, of_context) for of_context in of_targets[0]])
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
        for hard_fraction in HARD_FRACTIONS:
            sums = relative_loss_sums(of_targets, hard_fraction, text_ids)
            _add_relative_contexts(findings, sums, contexts, hard_fraction)
            if hard_fraction == HARD_FRACTIONS[0]:
                gains = relative_gains(sums.sum(1))
                names_of = ("relative gains", f"relative gains {OTHER_MODEL}")
                arrays |= dict(zip(names_of, gains, strict=False))
        return AnalysisResult(findings, arrays)

    def _context_lengths(self, inputs: AnalysisInput) -> list[int]:
        limit = inputs.model.encoder.max_length
        longest = min(self.max_context, limit - 3 if limit else self.max_context)
        return [1 << power for power in range(longest.bit_length())]


def comparable_models(inputs: AnalysisInput) -> list[AnalysedModel]:
    """Return the model, and the other one if it is a language model with the same tokenizer."""
    other = inputs.other_model
    if (
        other is None
        or not other.text_model.has_lm_head
        or other.tokenizer.hash != inputs.model.tokenizer.hash
    ):
        return [inputs.model]
    return [inputs.model, other]


def context_losses(
    analysed: AnalysedModel, targets: Sequence[Sequence[int]], contexts: Sequence[int]
) -> FloatArray:
    """Return the losses of the last token of every target, given its last tokens before, (C, T).

    A context beyond the maximum length of the model is truncated.
    """
    model, special = analysed.text_model.model, analysed.tokenizer.special_tokens
    assembly = model.recipe.assembly
    limit = analysed.encoder.max_length
    losses = np.zeros((len(contexts), len(targets)))
    for index, context in enumerate(contexts):
        if index and limit is not None and context > limit - 3:
            losses[index] = losses[index - 1]
            continue
        texts = [tokens[-context - 1 :] for tokens in targets]
        if analysed.text_model.is_causal:
            sequences = [[assembly.start_token(special), *tokens] for tokens in texts]
            by_sequence = token_log_probabilities(model, sequences, special.pad)
            scores = [of_tokens[-1] for of_tokens in by_sequence]
        else:
            sequences = [assembly.add_special_tokens(tokens, special) for tokens in texts]
            ends = [assembly.text_start + len(tokens) for tokens in texts]
            spans = [slice(end - 1, end) for end in ends]
            by_sequence = cloze_log_probabilities(model, analysed.tokenizer, sequences, spans)
            scores = [of_span[0] for of_span in by_sequence]
        losses[index] = -np.array(scores)
    return losses


def _add_relative_contexts(
    findings: Findings, sums: FloatArray, contexts: Sequence[int], hard_fraction: float
) -> None:
    """Add the relative effective contexts of the models, and the difference of two."""
    length = partial(relative_context_length, contexts=contexts)
    for of, of_model in zip(("", OTHER_MODEL), sums, strict=False):
        interval, _ = bootstrap_statistic(length, of_model, seed=findings.seed)
        findings.add_interval(relative_metric(hard_fraction, of), interval)
    if len(sums) > 1:
        difference, _ = bootstrap_statistic(length, *sums, seed=findings.seed)
        metric = relative_metric(hard_fraction, f"minus that {OTHER_MODEL}")
        findings.add_interval(metric, difference)
