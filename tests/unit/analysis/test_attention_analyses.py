"""Attention maps: other texts in a batch change nothing."""

from typing import get_args

import numpy as np
import pytest
import torch

from bertwright.analysis.attention.gradients import attention_gradient_sizes
from bertwright.analysis.attention.head_clusters import layer_permutation_p_value
from bertwright.analysis.attention.patterns import PATTERNS, AttentionPatterns
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.analysis.core.texts import encode_texts
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.formats.examples import Example
from experiments.analyses.attention import AttentionPointer, pointer_weights
from experiments.analyses.models import SENTENCES, small_model


def make_inputs(system: str = "bert", texts: tuple[str, ...] = SENTENCES) -> AnalysisInput:
    model = small_model(system)
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in texts]))


def test_block_patterns_are_detected_in_pairs_only() -> None:
    segment = torch.tensor([[0] * 6 + [1] * 6, [0] * 12])
    same = (segment[:, :, None] == segment[:, None, :]).double()
    weights = (same / same.sum(-1, keepdim=True))[:, None]
    uniform = torch.full((2, 1, 12, 12), 1 / 12).double()
    patterns = AttentionPatterns().classify_maps(weights, uniform, torch.full((2,), 12.0), segment)
    assert [PATTERNS[n] for n in patterns[:, 0]] == ["block", "heterogeneous"]


@pytest.mark.parametrize("kind", ["attention-mass", "attention-entropy", "attention-patterns"])
def test_neighbours_in_a_batch_change_nothing(kind: str) -> None:
    together, alone = make_inputs(), [make_inputs(texts=(text,)) for text in SENTENCES]
    result = Analysis.parse(kind).run(together)
    results = [Analysis.parse(kind).run(inputs) for inputs in alone]
    for number, finding in enumerate(result.findings):
        mean = np.mean([single.findings[number].value for single in results])
        assert finding.value == pytest.approx(mean, rel=1e-9)


def test_the_map_of_rollout_is_that_of_the_last_layer() -> None:
    inputs = make_inputs()
    (first,) = encode_texts(inputs.model, [Example(SENTENCES[0])])
    model = inputs.model.text_model.model
    with torch.no_grad(), model.record("blocks.*.attention.weights") as recorded:
        model(torch.tensor([first.token_ids]))
    product = torch.eye(len(first)).double()
    for layer in range(inputs.model.num_layers):
        weights = recorded[f"blocks.{layer}.attention.weights"][0].double().mean(0)
        product = (weights + torch.eye(len(first))) / 2 @ product
    rolled = Analysis.parse("attention-rollout").run(inputs).arrays["first_text"]
    np.testing.assert_allclose(rolled, product.numpy(), atol=1e-5)


def test_planted_weights_are_distributions_over_allowed_keys() -> None:
    allowed = torch.zeros(1, len(get_args(AttentionPointer)), 5, 5)
    allowed[..., :4] = 0.25
    weights = pointer_weights(allowed, get_args(AttentionPointer))
    assert torch.equal(
        weights[..., :4, :].sum(-1), torch.ones(1, len(get_args(AttentionPointer)), 4)
    )
    assert not weights[..., 4].any()


def test_p_values_of_heads_that_are_alike_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.analysis.attention.head_clusters.NUM_PERMUTATIONS", 200)
    generator, layer = np.random.default_rng(0), np.repeat(np.arange(4), 4)
    points = generator.normal(size=16) / 10
    by_layer, mixed = (np.abs(x[:, None] - x) for x in (points + layer, points))
    assert layer_permutation_p_value(by_layer, layer, 0) < 0.01
    permutations = [generator.permutation(16) for _ in range(100)]
    p_values = [
        layer_permutation_p_value(mixed[order][:, order], layer, 0) for order in permutations
    ]
    assert 0.02 <= np.mean(np.array(p_values) < 0.1) <= 0.2


@pytest.mark.parametrize("system", ["bert", "gpt", "modernbert"])
def test_gradients_cover_allowed_keys_only(system: str) -> None:
    inputs = make_inputs(system, texts=SENTENCES[:1])
    probe, length = MaskedLMProbe(inputs.model, inputs.texts), len(inputs.texts[0])
    with inputs.model.encoder.record("blocks.1.attention.weights", output_gradients=True) as values:
        loss = next(probe.scored_batches())[1].sum()
        (weights,) = values.values()
        (gradient,) = torch.autograd.grad(loss, [weights])
    allowed = inputs.model.encoder.allowed_pairs(
        1, TokenInfo.from_token_ids(torch.zeros(1, length))
    )[0, 0]
    expected = [
        gradient[0, :, allowed[:, column], column].abs().mean(1) for column in (0, length - 1)
    ]
    sizes = attention_gradient_sizes(probe)[0, 1, :, :2]
    np.testing.assert_allclose(sizes, torch.stack(expected, 1).numpy(), atol=1e-12)
    if system == "gpt":
        assert not sizes[:, 1].any(), "nothing is predicted after the last position"
