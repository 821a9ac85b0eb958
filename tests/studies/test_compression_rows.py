"""Every row of compression in short: its methods come to their end, and its exact checks hold."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from bertwright.compression.quantisation import Quantised
from bertwright.compression.quantisation.scan import rounded_afterwards
from bertwright.compression.replacement import Either
from bertwright.compression.surgery import Kept
from bertwright.encoder.choice import EncoderChoice
from bertwright.errors import UserError
from bertwright.recipes.loading import systems
from bertwright.studies.compression_checks.checking import check
from bertwright.studies.compression_checks.ground import Ground, made
from bertwright.studies.compression_checks.row import Measured
from bertwright.studies.compression_checks.rows import all_rows, learned_bits, surgery
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples
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


def test_rounding_afterwards_rounds_all_that_learning_in_few_bits_does(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Quantised] = []

    def noting(model: FineTuned, how: Quantised, seen: Examples) -> FineTuned:
        asked.append(how)
        return rounded_afterwards(model, how, seen)

    monkeypatch.setattr(learned_bits, "rounded_afterwards", noting)
    found = check(ground, "C11")
    whats = [figure.what for figure in found.figures]
    assert {how.activations.ranges for how in asked if how.activations} == {"static", "token"}
    for bits in learned_bits.QUICK_BITS:
        assert sum(f"rounded to {bits} bits" in what for what in whats) == 2
        assert all(how.activations and how.activations.bits == how.bits for how in asked)


def test_eight_bits_that_lose_more_than_another_seed_are_seen() -> None:
    def holds(found: list[float], quick: bool = False) -> list[bool]:
        came = learned_bits.as_good(found, [0.91, 0.93, 0.9], quick)
        return [isinstance(each, Measured) or each.holds for each in came]

    assert holds([0.9, 0.92, 0.92]) == [True]
    assert holds([0.0, 0.93, 0.93]) == [False]
    assert holds([0.0, 0.0, 0.0], quick=True) == []


def test_a_system_that_does_not_let_itself_be_cut_any_more_is_seen(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Kept.cut

    def refusing(kept: Kept, choice: EncoderChoice) -> EncoderChoice:
        if choice.depth.sharing == "all":
            raise UserError("no")
        return cut(kept, choice)

    monkeypatch.setattr(Kept, "cut", refusing)
    wrong = check(ground, "C16").wrong
    assert any("albert" in each for each in wrong), wrong


def test_what_is_known_of_systems_is_of_systems_that_there_are() -> None:
    assert set(systems()) >= surgery.UNITS_ALONE | surgery.REFUSING
