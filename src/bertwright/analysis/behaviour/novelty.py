"""How much of generated text is copied from the training data (McCoy et al. 2021)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars, LayerCurves
from bertwright.analysis.core.requirements import missing_left_to_right, missing_training_data
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.significance import FloatArray
from bertwright.data.shards.longest_matches import IntArray, longest_matches

GENERATED, REAL = "generated", "real"
NOVEL_FRACTION, LONGEST_SPAN = "novel n-grams", "longest copied span, tokens"
DIFFERENCE = f"{GENERATED} minus {REAL}"

SHORT, LONG = 2, 10
"""Lengths of n-grams that the claims are about."""


class GeneratedTextNovelty(Analysis):
    """The fraction of n-grams of generated text that do not occur in the training data.

    The model continues the first ``prompt_tokens`` tokens of every text by ``new_tokens`` tokens,
    sampled from the ``top_k`` most probable ones. The baseline is the text's own continuation,
    which must not be in the training data. An n-gram is n successive tokens of the continuation,
    for n up to ``max_ngram``; it is novel if no document of the training split contains it. The
    longest span of each continuation that a training document contains is reported as well.
    """

    kind: Literal["novelty"] = "novelty"
    prompt_tokens: int = Field(default=16, ge=1)
    new_tokens: int = Field(default=64, ge=LONG)
    top_k: int = Field(default=40, ge=1)
    max_ngram: int = Field(default=16, ge=LONG)
    survey_id = "B51"
    title = "How much of its training data does a model copy when it generates?"
    source = "McCoy et al. 2021"
    uses_training_data = True
    requires = (missing_left_to_right, missing_training_data)
    claims = (
        Claim(
            "pairs of tokens are novel less often in generated than in real text",
            "local structure is substantially less novel, in four language models",
            f"{NOVEL_FRACTION}, {DIFFERENCE}, n={SHORT}",
            direction="below",
        ),
        Claim(
            f"n-grams of {LONG} tokens are novel as often as in real text, or more often",
            "large-scale structure is as novel or even more novel, in four language models",
            f"{NOVEL_FRACTION}, {DIFFERENCE}, n={LONG}",
            -0.01,
            "one point less often",
        ),
    )
    plots = (
        LayerCurves("fraction of novel n-grams", has_embeddings=False, xlabel="n, tokens"),
        FindingBars(
            "longest copied span, mean", tuple(f"{LONGEST_SPAN}, {n}" for n in (GENERATED, REAL))
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        reason = super().not_applicable(inputs)
        if reason is None and not self._long_texts(inputs):
            return (
                f"it needs texts of at least {self.prompt_tokens + self.new_tokens} tokens after "
                f"truncation"
            )
        return reason

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        prompts, real = self._split_texts(inputs)
        generated = [
            [
                token
                for token in text.token_ids
                if token != inputs.model.tokenizer.special_tokens.end
            ]
            for text in inputs.model.text_model.generate(
                prompts, max_new_tokens=self.new_tokens, top_k=self.top_k, seed=inputs.seed
            )
        ]
        assert inputs.training_data is not None
        matches = longest_matches(inputs.training_data.split("train"), [*generated, *real])
        by_source = {GENERATED: matches[: len(real)], REAL: matches[len(real) :]}
        findings, curves = Findings(inputs.seed), dict[str, FloatArray]()
        for n in range(1, self.max_ngram + 1):
            counts = {name: novel_counts(lengths, n) for name, lengths in by_source.items()}
            _add_comparison(findings, f"{NOVEL_FRACTION}, {{}}, n={n}", counts)
            for name, (novel, totals) in counts.items():
                values = curves.setdefault(name, np.zeros(self.max_ngram))
                values[n - 1] = novel.sum() / totals.sum()
        spans = {
            name: np.array([longest.max(initial=0) for longest in lengths], np.float64)
            for name, lengths in by_source.items()
        }
        _add_comparison(
            findings,
            f"{LONGEST_SPAN}, {{}}",
            {name: (values, np.ones(len(values))) for name, values in spans.items()},
        )
        for name, values in spans.items():
            findings.add_value(f"{LONGEST_SPAN} in all texts, {name}", values.max())
        return AnalysisResult(findings, curves)

    def _long_texts(self, inputs: AnalysisInput) -> list[AnalysedText]:
        """Return the texts that hold a prompt and a continuation."""
        num_tokens = self.prompt_tokens + self.new_tokens
        return [text for text in inputs.texts if int((text.word_ids >= 0).sum()) >= num_tokens]

    def _split_texts(self, inputs: AnalysisInput) -> tuple[list[str], list[list[int]]]:
        """Return the prompts of the texts, and the token ids of their continuations."""
        stop = self.prompt_tokens + self.new_tokens
        tokens = [np.array(t.token_ids)[t.word_ids >= 0].tolist() for t in self._long_texts(inputs)]
        prompts = [inputs.model.tokenizer.decode(ids[: self.prompt_tokens]) for ids in tokens]
        return prompts, [ids[self.prompt_tokens : stop] for ids in tokens]


def novel_counts(lengths: Sequence[IntArray], n: int) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of novel and of all n-grams of every text, (N,) each.

    ``lengths`` are the longest matches from every position on.
    """
    novel = [(longest[: max(0, len(longest) - n + 1)] < n).sum() for longest in lengths]
    totals = [max(0, len(longest) - n + 1) for longest in lengths]
    return np.array(novel, np.float64), np.array(totals, np.float64)


def _add_comparison(
    findings: Findings, metric: str, counts: dict[str, tuple[FloatArray, FloatArray]]
) -> None:
    """Add the ratios of generated and of real text, and their difference."""
    generated, real = counts[GENERATED], counts[REAL]
    baseline = BaselineValue("real text", float(real[0].sum() / real[1].sum()))
    findings.add_ratio(metric.format(GENERATED), *generated, baseline=baseline)
    findings.add_ratio(metric.format(REAL), *real)
    findings.add_difference(metric.format(DIFFERENCE), generated, real)
