"""When compiling pays_off off."""

from pathlib import Path

import pytest

from bertwright.recipes import Recipe
from bertwright.training.compilation.payoff import compilation_pays_off, flops_per_token
from bertwright.training.compilation.step_variants import StepVariants
from small_recipe import small

PEAK = 4e11


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def pays_off(recipe: Recipe, budget: float | None, vocab_size: int = 8192) -> bool:
    variants = StepVariants(recipe, vocab_size, "float32", threads=1)
    return compilation_pays_off(recipe, variants, vocab_size, "cpu", PEAK, budget)


def test_a_short_run_is_not_compiled_and_a_long_one_is() -> None:
    assert not pays_off(small("modern", "steps=100"), None)
    assert pays_off(small("modern", "steps=100000000"), None)
    assert not pays_off(small(), budget=120)
    assert pays_off(small(), budget=600)


def test_a_warm_cache_pays_off_sooner() -> None:
    assert not pays_off(small(), budget=120)
    StepVariants(small(), 8192, "float32", threads=1).mark_cache_warm()
    assert pays_off(small(), budget=120)
    assert pays_off(small("modern", "steps=7", "optimiser.learning_rate=1"), budget=120)
    assert not pays_off(small("modern", "encoder.width=48"), budget=120)
    assert not pays_off(small(), budget=120, vocab_size=1000)


def test_every_phase_has_its_flops() -> None:
    causal, shifted, masked = flops_per_token(small(), 8192)
    assert causal > shifted == masked > 0
