"""When compiling repays its cold start."""

from pathlib import Path

import pytest
from small_recipe import small

from bertwright.recipes import Recipe
from bertwright.training.compilation.kinds import StepKinds
from bertwright.training.compilation.payoff import operations_per_token, repays

PEAK = 4e11


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def pays(recipe: Recipe, budget: float | None, vocabulary_size: int = 8192) -> bool:
    kinds = StepKinds(recipe, vocabulary_size, "float32", threads=1)
    return repays(recipe, kinds, vocabulary_size, "cpu", PEAK, budget)


def test_a_short_run_is_not_compiled_and_a_long_one_is() -> None:
    assert not pays(small("modern", "steps=100"), None)
    assert pays(small("modern", "steps=100000000"), None)
    assert not pays(small(), budget=120)
    assert pays(small(), budget=600)


def test_a_recipe_that_was_compiled_before_repays_sooner() -> None:
    assert not pays(small(), budget=120)
    StepKinds(small(), 8192, "float32", threads=1).note_warm()
    assert pays(small(), budget=120)
    assert pays(small("modern", "steps=7", "optimiser.rate=1"), budget=120)
    assert not pays(small("modern", "encoder.width=48"), budget=120)
    assert not pays(small(), budget=120, vocabulary_size=1000)


def test_every_phase_has_its_operations() -> None:
    causal, shifted, masked = operations_per_token(small(), 8192)
    assert causal > shifted == masked > 0
