"""Continuations and orders of halves: planted vectors that tell one, the other or neither."""

from collections.abc import Sequence

import numpy as np
import pytest

from bertwright.analysis.behaviour import coherence
from bertwright.analysis.behaviour.coherence import (
    CONTINUATION,
    CONTINUATION_MINUS_ORDER,
    SENTENCE_ORDER,
    InterSentenceCoherence,
)
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.core.significance import split_halves
from experiments.analyses.models import WORDS, small_inputs


def texts(number: int = 16, size: int = 9) -> list[str]:
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS[:15], size)) for _ in range(number)]


@pytest.mark.parametrize("knows", ["continuation", "order"])
def test_pairs_differ_from_other_texts_and_from_reversed_ones(
    knows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, seen = small_inputs(texts=texts()), list[Sequence[tuple[str, str]]]()
    halves = [(t.split()[:4], t.split()[4:]) for t in texts()]
    parts = [(" ".join(first), " ".join(second)) for first, second in halves]

    def vectors(one: AnalysisInput, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        seen.append(pairs)
        is_known = [
            pair in parts if knows == "continuation" else pair[0] in dict(parts) for pair in pairs
        ]
        # Random weights tell nothing.
        return np.array(is_known, np.float64)[:, None] * (one.model is inputs.model)

    monkeypatch.setattr(coherence, "pair_vectors", vectors)
    result = InterSentenceCoherence().run(inputs)
    values = {finding.metric: finding.value for finding in result.findings}
    continuation = 1.0 if knows == "continuation" else 0.5
    probe = MaskedLMProbe(inputs.model, inputs.texts)
    scores, confidence = probe.evaluate(), probe.confidence_sums()
    assert values == pytest.approx(
        {
            CONTINUATION: continuation,
            f"{CONTINUATION}, untrained": 0.5,
            f"{CONTINUATION}, minus untrained": continuation - 0.5,
            SENTENCE_ORDER: 1.0,
            f"{SENTENCE_ORDER}, untrained": 0.5,
            f"{SENTENCE_ORDER}, minus untrained": 0.5,
            CONTINUATION_MINUS_ORDER: continuation - 1.0,
            "masked tokens predicted correctly": scores.accuracy,
            "confidence minus accuracy": (
                confidence.sum() / scores.num_targets.sum() - scores.accuracy
            ),
        }
    )
    positives, others, again, reversed_pairs = seen[:4]
    assert positives == again == parts
    assert reversed_pairs == [pair[::-1] for pair in parts]
    for half in split_halves(16, 0):
        # Every second half is once the wrong one, in the same half of the texts.
        assert sorted(others[n][1] for n in half) == sorted(parts[n][1] for n in half)
        assert all(others[n][0] == parts[n][0] for n in half)
        assert all(others[n][1] != parts[n][1] for n in half)


def test_eight_texts_of_eight_words_are_needed() -> None:
    analysis = InterSentenceCoherence()
    assert analysis.not_applicable(small_inputs(texts=texts(8, 8))) is None
    for number, size in ((7, 8), (8, 7)):
        reason = analysis.not_applicable(small_inputs(texts=texts(number, size)))
        assert "eight texts of 8 words" in str(reason)
