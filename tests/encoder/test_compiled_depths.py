"""Compiled steps are compiled once, whichever blocks run and however far they look back."""

from functools import partialmethod

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from bertwright.encoder.kernels.noise import Noise
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, toy


@pytest.mark.parametrize(
    ("system", "changes", "graphs"),
    [
        ("bert", ("encoder.depth.drop=0.4",), 2),
        ("universal-transformer", (), 2),
        ("gpt-bert", (), 3),
        ("mobilebert", (), 2),
    ],
)
def test_one_graph_serves_all_blocks_and_steps(
    system: str, changes: tuple[str, ...], graphs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    encoder = Model.build(toy(system, "encoder.depth.layers=4", *changes), VOCABULARY).encoder
    encoder.compile_parts()
    pieces = torch.arange(5, 21)[None]
    for step in range(8):
        encoder(pieces, noise=Noise.of(0, step)).sum().backward()
    # The joining of the embeddings is one; a block is another, or two where it looks back.
    assert counters["stats"]["unique_graphs"] == graphs
