"""BLEU without heads: the difference for each head, and the best head of a layer by halves."""

import numpy as np
import pytest

from bertwright.analysis.heads.translation_heads import (
    ABLATED_BLEU_DIFFERENCE,
    ATTENTION_TAPS,
    FULL_BLEU,
    SINGLE_HEAD_BLEU_DIFFERENCE,
    AttentionHeads,
    TranslationHeads,
    TranslationProbe,
)
from bertwright.core.significance import split_halves
from bertwright.tasks.metrics.generated_text import BleuCounts, bleu
from experiments.analyses.expectations.removal import translation_inputs


def random_counts(generator: np.random.Generator, fraction: float) -> BleuCounts:
    """Return counts of six texts of nine tokens, of whose n-grams a fraction matches."""
    totals = np.tile([9, 8, 7, 6], (6, 1))
    return np.concatenate(
        [generator.binomial(totals, fraction), totals, np.full((6, 2), 9)], axis=1
    )


def test_heads_are_compared_with_all_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, seed = np.random.default_rng(0), 1
    full = random_counts(generator, 0.9)
    counts = {
        (part, layer, head, only): random_counts(generator, 0.3 if only else 0.7)
        for part in ATTENTION_TAPS
        for layer, head in np.ndindex(2, 4)
        for only in (False, True)
    }
    monkeypatch.setattr(TranslationProbe, "bleu_counts", lambda _: full)
    monkeypatch.setattr(
        AttentionHeads, "bleu_counts", lambda self, _, at, only: counts[self.part, *at, only]
    )
    inputs = translation_inputs()
    result = TranslationHeads().run(type(inputs)(inputs.model, inputs.texts, seed=seed))
    first, *findings = result.findings
    score = float(bleu(full.sum(0)))
    assert (first.metric, first.value) == (FULL_BLEU, pytest.approx(score))
    assert {f.baseline.value for f in findings if f.baseline and f.num_tests == 8} == {score}
    train, test = split_halves(6, seed)
    for part in ATTENTION_TAPS:
        ablated = {
            (f.layer, f.head): f.value
            for f in findings
            if f.metric == f"{ABLATED_BLEU_DIFFERENCE}: {part}"
        }
        assert ablated == pytest.approx(
            {at: bleu(counts[part, *at, False].sum(0)) - score for at in np.ndindex(2, 4)}
        )
        single = [f for f in findings if f.metric == f"{SINGLE_HEAD_BLEU_DIFFERENCE}: {part}"]
        assert [f.num_tests for f in single] == [2, 2]
        for layer, finding in enumerate(single):
            scores = [bleu(counts[part, layer, head, True][train].sum(0)) for head in range(4)]
            best = int(np.argmax(scores))
            assert (finding.layer, finding.head) == (layer, best)
            expected = bleu(counts[part, layer, best, True][test].sum(0)) - bleu(full[test].sum(0))
            assert finding.value == pytest.approx(expected)
        assert (result.arrays[f"{part}, only"][5] == counts[part, 1, 1, True]).all()
