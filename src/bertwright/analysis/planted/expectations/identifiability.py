"""Attention that could be otherwise, and places that bring nothing."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.identifiability.effective import EffectiveAttention, correlation, effective
from bertwright.analysis.identifiability.norms import AttentionNorms
from bertwright.analysis.planted.attention import EVEN, pointing
from bertwright.analysis.planted.expecting import Expected, above, below, equal
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_case


def effective_attention() -> Iterator[Expected]:
    """What is written stays the same, whether rows must add up or not; short rows lose nothing."""
    seen = torch.ones(1, 20, 20, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, 20, 20, generator=generator, dtype=torch.float64).softmax(-1)
    written = torch.randn(2, 20, 4, generator=generator, dtype=torch.float64)
    for constrained in (False, True):
        found, rank = effective(weights, written, seen, constrained)
        twice, _ = effective(found, written, seen, constrained)
        yield equal("what is written", found @ written, weights @ written, 1e-10)
        yield equal("rank", rank, 4 + constrained)
        yield equal("once more", twice, found, 1e-10)
    few = torch.randn(2, 4, 8, generator=generator, dtype=torch.float64)
    found, _ = effective(weights[:, :4, :4], few, seen[:, :4, :4])
    yield equal("short rows", found, weights[:, :4, :4], 1e-10)
    yield equal(
        "their correlation", correlation(weights[:, :4, :4], found, seen[:, :4, :4]), 1, 1e-9
    )
    longer = [" ".join([*WORDS, *WORDS[::-1]][: 10 * n]) for n in (2, 3, 4)]
    case = small_case(texts=[*SENTENCES, *longer])
    arrays = EffectiveAttention().run(case).arrays
    width = 32 // case.subject.num_heads
    free = np.maximum(arrays["lengths"] - width, 0)
    yield equal("null space", arrays["null space"].min((1, 2)), free, 0)
    means = arrays["correlations"].mean((1, 2))
    yield equal("correlation in short texts", means[arrays["lengths"] <= width], 1)
    yield below("correlation in long ones", means[arrays["lengths"] > 2 * width], 0.999)


def norms() -> Iterator[Expected]:
    """A place that brings nothing has weight, and no length."""
    case = small_case()

    def without_the_first(value: Tensor) -> Tensor:
        value = value.clone()
        value[:, :, 0] = 0
        return value

    with (
        pointing(case.subject, EVEN),
        case.subject.encoder.replace("blocks.*.attention.value", without_the_first),
    ):
        arrays = AttentionNorms().run(case).arrays
    yield above("weight of the first place", arrays["weight"][..., 0], 0.05)
    yield below("length of what it brings", arrays["length"][..., 0], 1e-12)
