"""Effective attention: the output stays the same, also with causal attention."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core.result import BaselineValue
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.identifiability.effective_attention import (
    CORRELATION_DROP,
    EffectiveAttention,
    effective_attention,
    head_output_factors,
)
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_inputs, small_model

ALL = torch.ones(1, 20, 20, dtype=torch.bool)


def planted(length: int = 20, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, length, length, generator=generator, dtype=torch.float64).softmax(-1)
    return weights, torch.randn(2, length, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_the_output_stays_the_same(constrained: bool, causal: bool) -> None:
    weights, values = planted()
    allowed = ALL.tril() if causal else ALL
    weights = weights * allowed
    weights = weights / weights.sum(-1, keepdim=True)
    effective, rank = effective_attention(weights, values, allowed, constrained)
    assert (effective @ values - weights @ values).abs().max() < 1e-10
    assert not effective[~allowed.expand_as(effective)].any()
    assert rank.tolist() == [4 + constrained] * 2
    sums = effective.sum(-1)
    assert ((sums - 1).abs().max() < 1e-12) == constrained
    twice, _ = effective_attention(effective, values, allowed, constrained)
    torch.testing.assert_close(twice, effective, rtol=1e-10, atol=1e-12)


@pytest.mark.processor
def test_a_change_in_the_null_space_changes_no_output() -> None:
    model = small_model()
    (text,) = encode_texts(model, [Example(" ".join(WORDS[:18]))])
    token_ids = torch.tensor([text.token_ids])
    with torch.inference_mode(), model.encoder.record("blocks.1.attention.*") as values:
        expected = model.encoder(token_ids)
    weights, value = (values[f"blocks.1.attention.{n}"][0].double() for n in ("weights", "value"))
    effective, _ = effective_attention(
        weights, value @ head_output_factors(model, 1), ALL[:, : len(text), : len(text)]
    )
    assert (effective - weights).abs().max() > 1e-3
    with (
        torch.inference_mode(),
        model.encoder.replace("blocks.1.attention.weights", lambda w: effective[None].to(w.dtype)),
    ):
        torch.testing.assert_close(model.encoder(token_ids), expected, rtol=1e-6, atol=1e-7)


def test_correlations_are_averaged_by_length_and_by_head() -> None:
    """Texts are short if attention is determined: up to a head's width, which is 8."""
    generator, lengths = np.random.default_rng(0), [8, 9, 16, 17, 32, 33, 65]
    inputs = small_inputs(texts=[" ".join(generator.choice(WORDS, n - 2)) for n in lengths])
    shape = (len(lengths), 2, 4)
    measured = {name: generator.random(shape) for name in ("correlations", "null_space_size")}
    measured |= {name: generator.random((*shape, 6)) for name in ("raw", "effective")}
    result = EffectiveAttention().summarise(inputs, measured)
    means = measured["correlations"].mean((1, 2))
    ranges = {(1, 16): means[:3], (17, 32): means[3:5], (33, 48): means[5:6], (65, 96): means[6:]}
    values = {f.metric: f.value for f in result.findings if f.layer is None}
    assert values == pytest.approx(
        {
            CORRELATION_DROP: means[0] - means[3:].mean(),
            **{
                f"correlation, texts of {low} to {high} tokens": of_range.mean()
                for (low, high), of_range in ranges.items()
            },
        }
    )
    by_head = {(f.metric, f.layer, f.head): f for f in result.findings if f.layer is not None}
    assert len(by_head) == 2 * 4 * 6
    separator = by_head["effective, separator", 1, 2]
    assert separator.value == pytest.approx(measured["effective"][:, 1, 2, 1].mean())
    assert separator.baseline == BaselineValue("raw", measured["raw"][:, 1, 2, 1].mean())
