"""Changes of attention weights, and distances between distributions."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from bertwright.analysis.attention.explanation import (
    mean_jensen_shannon_divergence,
    permute_weights,
    remove_position,
    total_variation,
    uniform_weights,
)


def causal_weights(seed: int = 0) -> torch.Tensor:
    """Return weights (B, H, L, L) over the keys up to each query."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64)
    allowed = torch.ones(6, 6, dtype=torch.bool).tril()
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1)


def test_uniform_weights_share_the_allowed_keys() -> None:
    uniform = uniform_weights(causal_weights())
    expected = np.tril(1 / np.arange(1, 7)[:, None] * np.ones(6))
    np.testing.assert_allclose(uniform, np.broadcast_to(expected, uniform.shape))


def test_permuted_weights_are_the_same_weights_on_allowed_keys() -> None:
    weights = causal_weights()
    permuted = permute_weights(torch.Generator().manual_seed(1))(weights)
    assert ((permuted > 0) == (weights > 0)).all()
    torch.testing.assert_close(permuted.sort(-1).values, weights.sort(-1).values)
    assert (permuted[..., -1, :] != weights[..., -1, :]).any()


@pytest.mark.parametrize("position", [0, 2])
def test_the_rest_is_renormalised_without_a_position(position: int) -> None:
    weights = causal_weights()
    changed = remove_position(position)(weights)
    others = [n for n in range(6) if n != position]
    has_others = weights[..., others].sum(-1) > 0
    assert not changed[..., position][has_others].any()
    expected = weights[..., others] / weights[..., others].sum(-1, keepdim=True)
    torch.testing.assert_close(changed[..., others][has_others], expected[has_others])
    # The first query has no other key than the first.
    assert has_others.all() == (position != 0)
    torch.testing.assert_close(changed[~has_others], weights[~has_others])


def test_distances_are_those_of_scipy() -> None:
    first, second = [causal_weights(0), causal_weights(1)], [causal_weights(2), causal_weights(3)]
    expected = np.mean(
        [jensenshannon(a, b, axis=-1) ** 2 for a, b in zip(first, second, strict=True)]
    )
    divergence = mean_jensen_shannon_divergence(first, second)
    assert divergence.item() == pytest.approx(expected)
    a, b = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.2, 0.7])
    assert total_variation(a, b) == pytest.approx(0.6)
    assert total_variation(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])) == 1
