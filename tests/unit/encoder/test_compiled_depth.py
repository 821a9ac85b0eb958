"""Compiled steps are compiled once, whichever blocks run and however many outputs they read."""

from functools import partialmethod

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from bertwright.models import Model
from bertwright.modules.dropout_rng import DropoutRng
from toy_recipes import VOCABULARY, toy


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
    tokens = torch.arange(5, 21)[None]
    for step in range(8):
        encoder(tokens, dropout_rng=DropoutRng.for_step(0, step)).sum().backward()
    # One graph for the embedding sum, one for a block, or two with depth averages.
    assert counters["stats"]["unique_graphs"] == graphs
