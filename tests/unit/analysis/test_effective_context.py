"""Effective context: a model that copies a token at a fixed lag needs exactly that context."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model

LAG = 4


def texts(number: int = 20, size: int = 20) -> list[Example]:
    """Return texts of four random words, repeated."""
    generator = np.random.default_rng(0)
    samples = [generator.choice(WORDS[:15], LAG) for _ in range(number)]
    return [Example(" ".join(np.tile(words, size // LAG))) for words in samples]


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
def test_the_loss_drops_when_the_copied_token_is_visible(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(system)
    inputs = AnalysisInput(model, encode_texts(model, texts()))
    module = "bertwright.analysis.dynamics.effective_context"

    def scores(sequences: list[list[int]], index: int) -> list[list[float]]:
        is_visible = [len(tokens) + index - LAG >= 1 for tokens in sequences]
        return [[0.0 if visible else -3.0] for visible in is_visible]

    monkeypatch.setattr(f"{module}.token_log_probabilities", lambda _, ids, __: scores(ids, -1))
    monkeypatch.setattr(
        f"{module}.cloze_log_probabilities", lambda _, __, ids, ___: scores(ids, -2)
    )
    result = Analysis.parse({"kind": "effective-context", "max_context": 16}).run(inputs)
    values = {finding.metric: finding.value for finding in result.findings}
    assert values["loss with 2 context tokens"] == 3
    assert values["loss with 4 context tokens"] == 0
    assert values["effective context, tokens"] == LAG


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_all_context_lengths_are_scored(system: str) -> None:
    model = small_model(system)
    inputs = AnalysisInput(model, encode_texts(model, texts(3)))
    settings = {"kind": "effective-context", "max_context": 8, "positions_per_text": 100}
    result = Analysis.parse(settings).run(inputs)
    assert result.arrays["contexts"].tolist() == [1, 2, 4, 8]
    assert result.arrays["num_targets"].tolist() == [12, 12, 12]
    assert torch.isfinite(torch.from_numpy(result.arrays["losses"])).all()


def test_short_texts_are_not_enough() -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, texts(3)))
    reason = Analysis.parse("effective-context").not_applicable(inputs)
    assert reason is not None
    assert "more than" in reason
