"""The largest logits equal their definition, in value and in every gradient."""

import pytest
import torch

from bertwright.modules import max_logits as kernel


@pytest.mark.parametrize("chunk_elements", [10**9, 50])
def test_value_and_gradients_equal_the_definition(monkeypatch, chunk_elements: int) -> None:
    monkeypatch.setattr(kernel, "CHUNK_ELEMENTS", chunk_elements)
    generator = torch.Generator().manual_seed(0)
    hidden_states = torch.randn(3, 5, 4, generator=generator, requires_grad=True)
    table = torch.randn(11, 4, generator=generator, requires_grad=True)
    is_read = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    scale = torch.rand(3, 11, generator=generator)

    maxima = kernel.max_logits(hidden_states, table, is_read)
    gradients = torch.autograd.grad((maxima.relu() * scale).sum(), (hidden_states, table))

    logits = (hidden_states @ table.T).masked_fill(~is_read[..., None], -torch.inf)
    expected = torch.autograd.grad((logits.amax(1).relu() * scale).sum(), (hidden_states, table))
    torch.testing.assert_close(maxima, logits.amax(1))
    torch.testing.assert_close(gradients, expected)
    with torch.no_grad():
        torch.testing.assert_close(kernel.max_logits(hidden_states, table, is_read), maxima)
