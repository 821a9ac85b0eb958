"""Effective context: a model that copies a token at a fixed lag needs exactly that context."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisResult, StoredResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.dynamics.effective_context import (
    OTHER_MODEL,
    comparable_models,
    context_losses,
    relative_metric,
)
from bertwright.analysis.dynamics.relative_context import (
    relative_context_length,
    relative_loss_sums,
)
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model

LAG = 4


def texts(number: int = 20, size: int = 20) -> list[Example]:
    """Return texts of four random words, repeated."""
    generator = np.random.default_rng(0)
    samples = [generator.choice(WORDS[:15], LAG) for _ in range(number)]
    return [Example(" ".join(np.tile(words, size // LAG))) for words in samples]


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet", "transformer-xl"])
def test_the_loss_drops_when_the_copied_token_is_visible(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(system)
    inputs = AnalysisInput(model, encode_texts(model, texts()))
    module = "bertwright.analysis.dynamics.effective_context"

    assembly, specials = model.text_model.model.recipe.assembly, model.tokenizer.special_tokens
    start, opening = assembly.text_start, [assembly.start_token(specials)][: assembly.text_start]
    targets = [set(text.token_ids[16 + start : 20 + start]) for text in inputs.texts]

    def scores(sequences: list[list[int]], index: int) -> list[list[float]]:
        assert all(ids[:start] == opening for ids in sequences)
        # What is predicted comes behind the longest context, and differs with the text.
        assert all(any(ids[index] in of_text for of_text in targets) for ids in sequences)
        is_visible = [len(tokens) + index - LAG >= start for tokens in sequences]
        return [[0.0 if visible else -3.0] for visible in is_visible]

    monkeypatch.setattr(f"{module}.token_log_probabilities", lambda _, ids, __: scores(ids, -1))
    monkeypatch.setattr(
        f"{module}.cloze_log_probabilities", lambda _, __, ids, ___: scores(ids, start - 3)
    )
    result = Analysis.parse({"kind": "effective-context", "max_context": 16}).run(inputs)
    values = {finding.metric: finding.value for finding in result.findings}
    assert values["loss with 2 context tokens"] == 3
    assert values["loss with 4 context tokens"] == 0
    assert values["effective context, tokens"] == LAG
    # The doubled context must help from the first length on.
    assert values[relative_metric(1.0)] == 1


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_all_context_lengths_are_scored(system: str) -> None:
    model = small_model(system)
    inputs = AnalysisInput(model, encode_texts(model, texts(3)))
    settings = {"kind": "effective-context", "max_context": 8, "positions_per_text": 100}
    result = Analysis.parse(settings).run(inputs)
    # Every position with eight tokens before it is predicted.
    assert result.arrays["contexts"].tolist() == [1, 2, 4, 8]
    assert result.arrays["num_targets"].tolist() == [12, 12, 12]
    assert torch.isfinite(torch.from_numpy(result.arrays["losses"])).all()


def test_short_texts_are_not_enough() -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, texts(3)))
    reason = Analysis.parse("effective-context").not_applicable(inputs)
    assert reason is not None
    assert "more than" in reason


def relative_contexts(losses: np.ndarray, hard_fraction: float) -> list[float]:
    """Return the lengths of a group of models by the equations of the paper, target by target."""
    contexts, lengths = [1 << n for n in range(losses.shape[1])], []
    for model in losses:
        step = 0
        while step + 1 < len(contexts):
            baseline = [min(other[step][t] for other in losses) for t in range(losses.shape[2])]
            hardest = sorted(range(len(baseline)), key=lambda t: -baseline[t])
            hard = hardest[: max(1, round(hard_fraction * len(baseline)))]
            short = np.exp(np.mean([baseline[t] for t in hard]))
            long = np.exp(np.mean([min(baseline[t], model[step + 1][t]) for t in hard]))
            if (short - long) / short < 0.01:
                break
            step += 1
        lengths.append(contexts[step])
    return lengths


@pytest.mark.parametrize("hard_fraction", [0.1, 0.5, 1.0])
def test_relative_contexts_follow_the_equations(hard_fraction: float) -> None:
    generator = np.random.default_rng(0)
    lengths = set()
    for _ in range(20):
        gains = generator.exponential(0.02, (3, 5, 40)) * (generator.random((3, 5, 1)) < 0.8)
        losses = 3 + generator.random(40) - gains.cumsum(1) + generator.normal(0, 0.01, (3, 1, 40))
        text_ids = np.sort(np.arange(40) % 7)
        sums = relative_loss_sums(losses, hard_fraction, text_ids)
        assert sums.shape == (3, 7, 12)
        values = relative_context_length(sums.sum(1), [1, 2, 4, 8, 16])
        assert values.tolist() == relative_contexts(losses, hard_fraction)
        lengths |= {*values.tolist()}
    assert len(lengths) > 2


def test_a_worse_model_has_the_same_context_alone_and_a_shorter_one_in_a_group() -> None:
    better = 5 - 0.1 * np.arange(4.0)[:, None] + np.zeros(10)
    for losses, expected in (
        (better[None], [8]),
        (better[None] + 1, [8]),
        (np.array([better, better + 1]), [8, 1]),
    ):
        sums = relative_loss_sums(losses, 1.0, np.arange(10)).sum(1)
        assert relative_context_length(sums, [1, 2, 4, 8]).tolist() == expected


def test_the_model_with_the_longer_context_is_the_one_that_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def losses(
        analysed: AnalysedModel, targets: list[list[int]], contexts: list[int]
    ) -> np.ndarray:
        reach = {"near": 2, "far": 16}[analysed.name]
        gains = 0.2 * np.log2(np.minimum(contexts, reach))
        return 5 - gains[:, None] + np.random.default_rng(0).random(len(targets))

    monkeypatch.setattr("bertwright.analysis.dynamics.effective_context.context_losses", losses)
    near, far = (replace(small_model(), name=name) for name in ("near", "far"))
    analysis = Analysis.parse({"kind": "effective-context", "max_context": 16})
    claim = "the relative effective context is longer than that of the other model"
    for first, second, verdict in ((far, near, "seen"), (near, far, "opposite")):
        inputs = AnalysisInput(first, encode_texts(first, texts()), other_model=second)
        result = analysis.run(inputs)
        values = {finding.metric: finding.value for finding in result.findings}
        reaches = [values[relative_metric(0.1, of)] for of in ("", OTHER_MODEL)]
        assert sorted(reaches) == [2, 16]
        assert {c.claim: c.verdict for c in check_claims(analysis, result)} == {
            "more context helps": "seen",
            claim: verdict,
        }


def check_claims(analysis: Analysis, result: AnalysisResult) -> list[ClaimResult]:
    stored = StoredResult({}, [f.as_dict() for f in result.findings], result.arrays)
    return analysis.check_claims(stored)


def test_models_of_a_group_share_their_tokenizer_and_contexts_end_at_their_length() -> None:
    model = small_model("gpt-2")
    inputs = AnalysisInput(model, encode_texts(model, texts(4)))
    other = small_model("gpt-2", words=[*WORDS, "new"])
    assert comparable_models(replace(inputs, other_model=other)) == [model]
    assert comparable_models(replace(inputs, other_model=model)) == [model, model]
    changes = ("encoder.positions.size=8", "phases=[{length: 8, fraction: 1}]")
    short = small_model("gpt-2", *changes)
    targets = [[*range(5, 14)], [*range(9, 18)]]
    values = context_losses(short, targets, [1, 2, 4, 8])
    assert (values[3] == values[2]).all()
    assert (values[2] != values[1]).all()
