"""Places that are made of three pieces."""

import pytest
import torch

from bertwright.encoder.embeddings import TrigramProjection
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.recipes import Recipe


def test_next_own_and_previous_stand_side_by_side_within_a_document() -> None:
    projection = TrigramProjection(1, 3)
    projection.dense.weight.data = torch.eye(3)
    projection.dense.bias.data.zero_()
    x = torch.arange(1.0, 7.0).view(1, 6, 1)
    place = torch.arange(6)[None]
    document = torch.tensor([[0, 0, 0, 1, 1, -1]])
    alone = projection(x[:, :3], Coordinates(place[:, :3]))[0]
    packed = projection(x, Coordinates(place, document=document))[0]
    first, second = [[2.0, 1, 0], [3, 2, 1], [0, 3, 2]], [[5.0, 4, 0], [0, 5, 4]]
    torch.testing.assert_close(alone, torch.tensor(first))
    torch.testing.assert_close(packed[:5], torch.tensor(first + second))


def test_a_model_that_reads_the_next_piece_is_not_asked_for_it() -> None:
    with pytest.raises(UserError, match="makes a place of the next piece"):
        Recipe.load("mobilebert-tiny", "objectives={masked: null, next-sentence: null, causal: {}}")
