"""Steps are of one kind where one compiled graph serves them, made by one toolchain."""

import pytest
from small_recipe import small

from bertwright.machine import compiler
from bertwright.training.clock import Place
from bertwright.training.compilation import kinds as kinds_module
from bertwright.training.compilation.kinds import StepKinds


def kinds(*changes: str, precision: str = "float32", threads: int = 1) -> StepKinds:
    return StepKinds(small("modern", *changes), 120, precision, threads)


def test_every_kind_has_a_place_of_its_own() -> None:
    three = kinds()
    names = [three.at(place) for place in three.places()]
    assert len(names) == len(set(names)) == len(three) == 3
    assert [place.phase for place in three.places()] == [0, 1, 2]


def test_objectives_in_turn_are_kinds_of_their_own() -> None:
    turns = kinds("phases=[{objectives: {masked: {share: 1}, causal: {share: 1}}}]")
    assert len(list(turns.places())) == len(turns) == 2


@pytest.mark.parametrize(
    "other",
    [
        kinds("encoder.width=48"),
        kinds("batch_tokens=512"),
        kinds("optimiser.kind=adamw"),
        kinds(precision="bf16"),
        kinds(threads=2),
    ],
)
def test_what_another_graph_is_made_for_is_another_kind(other: StepKinds) -> None:
    start = Place(0, 0.0)
    assert other.at(start) != kinds().at(start)


def test_what_changes_no_graph_changes_no_kind() -> None:
    start = Place(0, 0.0)
    assert kinds("steps=7", "seed=3", "optimiser.rate=1").at(start) == kinds().at(start)


def test_another_toolchain_is_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Place(0, 0.0)
    here = kinds().at(start)
    monkeypatch.setattr(kinds_module, "toolchain", lambda: compiler.toolchain() + " 2")
    assert kinds().at(start) != here
