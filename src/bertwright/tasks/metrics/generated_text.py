"""Metrics of generated texts: BLEU, ROUGE, and the likelihood of the references.

BLEU (Papineni et al. 2002) is sacrebleu's, from 0 to 100: tokenizer 13a, exponential smoothing.
ROUGE (Lin 2004) is rouge-score's F1, from 0 to 1, of stemmed English words.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from bertwright.core.errors import MissingExtra
from bertwright.core.optional_dependencies import require_library
from bertwright.tasks.metrics.metrics import FloatArray64, Metric, MetricSums, mean_metric

TEXT_METRICS_EXTRA = "text-metrics"

MAX_NGRAM = 4
"""Maximum n of the n-grams that BLEU counts."""

BleuCounts = FloatArray64
"""(..., 2 MAX_NGRAM + 2): matching n-grams, all n-grams, and lengths of text and reference."""


class ScoredText(NamedTuple):
    """A generated text, and the log-likelihood (nats) and number of tokens of its reference.

    ``num_tokens`` is 0 if the likelihood is unknown.
    """

    text: str
    log_likelihood: float = 0.0
    num_tokens: int = 0


def sentence_bleu_counts(text: str, reference: str) -> BleuCounts:
    """Return the BLEU counts of one text."""
    score = load_sacrebleu().sentence_score(text, [reference])
    return np.array([*score.counts, *score.totals, score.sys_len, score.ref_len], np.float64)


def bleu(counts: BleuCounts) -> FloatArray64:
    """Return BLEU (...), 0 to 100, for counts summed over texts (..., 2 MAX_NGRAM + 2)."""
    metric, rows = load_sacrebleu(), counts.reshape(-1, counts.shape[-1])
    scores = [
        metric.compute_bleu(
            row[:MAX_NGRAM].tolist(), row[MAX_NGRAM:-2].tolist(), int(row[-2]), int(row[-1]), "exp"
        ).score
        for row in rows
    ]
    return np.array(scores).reshape(counts.shape[:-1])


@cache
def load_sacrebleu() -> Any:
    """Load the BLEU metric of sacrebleu."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtra("sacrebleu", TEXT_METRICS_EXTRA) from error
    return BLEU(effective_order=True)


@cache
def load_rouge() -> Any:
    """Load the scorer of rouge-score."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise MissingExtra("rouge-score", TEXT_METRICS_EXTRA) from error
    return RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)


@lru_cache(maxsize=1 << 16)
def rouge_scores(reference: str, text: str) -> dict[str, float]:
    """Return the F1 of ``rouge1``, ``rouge2`` and ``rougeL`` of one text."""
    return {name: score.fmeasure for name, score in load_rouge().score(reference, text).items()}


def _bleu_sums(references: Sequence[str], texts: Sequence[ScoredText]) -> MetricSums:
    counts = [
        sentence_bleu_counts(scored.text, reference)
        for reference, scored in zip(references, texts, strict=True)
    ]
    return MetricSums(np.stack(counts), bleu)


def _rouge(name: str) -> Metric:
    return mean_metric(lambda reference, scored: rouge_scores(reference, scored.text)[name])


def _likelihood_sums(references: Sequence[str], texts: Sequence[ScoredText]) -> MetricSums:
    def inverse_perplexity(sums: FloatArray64) -> FloatArray64:
        log_likelihood, num_tokens = sums[..., 0], sums[..., 1]
        return np.exp(log_likelihood / np.maximum(num_tokens, 1)) * (num_tokens > 0)

    values = [(scored.log_likelihood, scored.num_tokens) for scored in texts]
    return MetricSums(np.array(values, np.float64), inverse_perplexity)


BLEU = Metric(_bleu_sums)
ROUGE_1, ROUGE_2, ROUGE_L = _rouge("rouge1"), _rouge("rouge2"), _rouge("rougeL")

EXACT_MATCH = mean_metric(lambda reference, scored: float(reference == scored.text))
"""The fraction of texts that equal their reference."""

INVERSE_PERPLEXITY = Metric(_likelihood_sums)
"""exp(-loss): the geometric mean of the probabilities of the references' tokens; 0 if unknown."""

TEXT_METRICS = {
    "bleu": BLEU,
    "rouge-l": ROUGE_L,
    "rouge-1": ROUGE_1,
    "rouge-2": ROUGE_2,
    "inverse-perplexity": INVERSE_PERPLEXITY,
    "exact": EXACT_MATCH,
}
"""Metrics of generated texts by name."""

_METRIC_LIBRARIES: dict[Callable[..., Any], str] = {
    BLEU: "sacrebleu",
    **dict.fromkeys((ROUGE_1, ROUGE_2, ROUGE_L), "rouge-score"),
}


def require_metric_library(name: str) -> None:
    """Raise MissingExtra if the library of a metric is not installed."""
    if (library := _METRIC_LIBRARIES.get(TEXT_METRICS[name])) is not None:
        require_library(library, TEXT_METRICS_EXTRA)
