"""When compiling repays its cold start."""

from pathlib import Path

import pytest
from small_recipe import small

from bertwright.training.compilation import operations_per_token, remember, repays

PEAK = 4e11


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def test_a_short_run_is_not_compiled_and_a_long_one_is() -> None:
    assert not repays(small("modern", "steps=100"), 8192, "cpu", PEAK, None)
    assert repays(small("modern", "steps=100000000"), 8192, "cpu", PEAK, None)
    assert not repays(small(), 8192, "cpu", PEAK, budget=120)
    assert repays(small(), 8192, "cpu", PEAK, budget=600)


def test_a_recipe_that_was_compiled_before_repays_sooner() -> None:
    assert not repays(small(), 8192, "cpu", PEAK, budget=120)
    remember(small(), 8192)
    assert repays(small(), 8192, "cpu", PEAK, budget=120)
    assert repays(small("modern", "steps=7", "optimiser.rate=1"), 8192, "cpu", PEAK, budget=120)
    assert not repays(small("modern", "encoder.width=48"), 8192, "cpu", PEAK, budget=120)
    assert not repays(small(), 1000, "cpu", PEAK, budget=120)


def test_every_phase_has_its_operations() -> None:
    causal, shifted, masked = operations_per_token(small(), 8192)
    assert causal > shifted == masked > 0
