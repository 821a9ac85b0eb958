"""Attention that can change without effect, and positions with zero values."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.identifiability.attention_norms import AttentionNorms
from bertwright.analysis.identifiability.effective_attention import (
    EffectiveAttention,
    effective_attention,
    weight_correlation,
)
from experiments.analyses.attention import UNIFORM_HEADS, plant_attention
from experiments.analyses.expecting import ExpectedValue, expect_above, expect_below, expect_equal
from experiments.analyses.models import SENTENCES, WORDS, small_inputs


def expect_effective_attention() -> Iterator[ExpectedValue]:
    """Check that outputs stay the same, and that short texts lose nothing."""
    allowed = torch.ones(1, 20, 20, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, 20, 20, generator=generator, dtype=torch.float64).softmax(-1)
    values = torch.randn(2, 20, 4, generator=generator, dtype=torch.float64)
    for constrained in (False, True):
        effective, rank = effective_attention(weights, values, allowed, constrained)
        twice, _ = effective_attention(effective, values, allowed, constrained)
        yield expect_equal("output", effective @ values, weights @ values, 1e-10)
        yield expect_equal("rank", rank, 4 + constrained)
        yield expect_equal("applied twice", twice, effective, 1e-10)
    values = torch.randn(2, 4, 8, generator=generator, dtype=torch.float64)
    short, mask = weights[:, :4, :4], allowed[:, :4, :4]
    effective, _ = effective_attention(short, values, mask)
    yield expect_equal("short texts", effective, short, 1e-10)
    correlation = weight_correlation(short, effective, mask)
    yield expect_equal("their correlation", correlation, 1, 1e-9)
    longer = [" ".join([*WORDS, *WORDS[::-1]][: 10 * n]) for n in (2, 3, 4)]
    inputs = small_inputs(texts=[*SENTENCES, *longer])
    arrays = EffectiveAttention().run(inputs).arrays
    head_size = 32 // inputs.model.num_heads
    expected = np.maximum(arrays["lengths"] - head_size, 0)
    yield expect_equal("null space", arrays["null_space_size"].min((1, 2)), expected, 0)
    means = arrays["correlations"].mean((1, 2))
    yield expect_equal("correlation in short texts", means[arrays["lengths"] <= head_size], 1)
    yield expect_below("correlation in long ones", means[arrays["lengths"] > 2 * head_size], 0.999)


def expect_attention_norms() -> Iterator[ExpectedValue]:
    """Check that a position with zero values has weight and no norm."""
    inputs = small_inputs()

    def zero_first_value(value: Tensor) -> Tensor:
        value = value.clone()
        value[:, :, 0] = 0
        return value

    with (
        plant_attention(inputs.model, UNIFORM_HEADS),
        inputs.model.encoder.replace("blocks.*.attention.value", zero_first_value),
    ):
        arrays = AttentionNorms().run(inputs).arrays
    yield expect_above("weight of the first position", arrays["weight"][..., 0], 0.05)
    yield expect_below("norm of the first position", arrays["norm"][..., 0], 1e-12)
