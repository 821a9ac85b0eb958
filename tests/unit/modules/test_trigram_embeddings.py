"""Embeddings of the next, current and previous token."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.modules.embeddings.embeddings import TrigramProjection
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe


def test_neighbours_are_read_within_a_document() -> None:
    projection = TrigramProjection(1, 3)
    projection.dense.weight.data = torch.eye(3)
    projection.dense.bias.data.zero_()
    x = torch.arange(1.0, 7.0).view(1, 6, 1)
    index = torch.arange(6)[None]
    document_ids = torch.tensor([[0, 0, 0, 1, 1, -1]])
    alone = projection(x[:, :3], TokenInfo(index[:, :3]))[0]
    packed = projection(x, TokenInfo(index, document_ids=document_ids))[0]
    first, second = [[2.0, 1, 0], [3, 2, 1], [0, 3, 2]], [[5.0, 4, 0], [0, 5, 4]]
    torch.testing.assert_close(alone, torch.tensor(first))
    torch.testing.assert_close(packed[:5], torch.tensor(first + second))


def test_causal_objectives_are_rejected() -> None:
    with pytest.raises(UserError, match="reads the next token"):
        Recipe.load("mobilebert-tiny", "objectives={masked: null, next-sentence: null, causal: {}}")
