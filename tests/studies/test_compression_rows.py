"""Every row of compression in short: its methods come to their end, and its exact checks hold."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from bertwright.compression.replacement import Either
from bertwright.studies.compression_checks.checking import check
from bertwright.studies.compression_checks.ground import Ground, made
from bertwright.studies.compression_checks.rows import all_rows
from short_runs import shorten


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield made(tmp_path_factory.mktemp("ground"), quick=True)


@pytest.mark.parametrize("number", [row.number for row in all_rows()])
def test_a_row_holds(ground: Ground, number: str) -> None:
    found = check(ground, number)
    assert found.ok, found.wrong
    assert found.checks or found.figures


def test_a_predecessor_that_learns_is_seen(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Either.forward

    def drifting(passage: Either, *given, **named) -> torch.Tensor:
        with torch.no_grad():
            for parameter in passage.old[-1].parameters():
                parameter.mul_(1.001)
        return forward(passage, *given, **named)

    monkeypatch.setattr(Either, "forward", drifting)
    wrong = check(ground, "C13").wrong
    assert any("predecessor.encoder.blocks.3" in each for each in wrong), wrong


def test_a_head_of_a_successor_that_learns_is_seen(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.Module, "requires_grad_", lambda module, *_: module)
    wrong = check(ground, "C13").wrong
    assert any("head" in each and "encoder.embeddings" in each for each in wrong), wrong
