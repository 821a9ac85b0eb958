"""Peaks are rates that products reach, and the precision is the one that multiplies faster."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertwright.machine import speed
from bertwright.machine.cache import cache_folder, recall, remember
from bertwright.machine.speed import (
    RATES_FILE,
    Rates,
    known_matrix_peak,
    matrix_peak,
    measure_rates,
    product_rates,
    reason_for,
    usual_precision,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and nothing measured in this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(speed, "_peaks", {})
    speed._product_rates.cache_clear()
    yield cache_folder()
    speed._product_rates.cache_clear()


def test_the_peak_is_a_positive_rate() -> None:
    assert 0 < matrix_peak("float32", seconds=0.01) < math.inf


def test_bfloat16_needs_instructions_that_onednn_may_use() -> None:
    program = "from bertwright.machine.speed import multiplies_bfloat16 as m; print(m())"
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "False"


def test_every_precision_has_a_rate() -> None:
    rates = measure_rates(seconds=0.01)
    assert 0 < rates.float32 < math.inf
    assert 0 < rates.bf16 < math.inf
    assert 0 <= rates.int8 < math.inf


@pytest.mark.processor
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("float32", "bf16", "usual"), [(170e9, 400e9, "bf16"), (337e9, 168e9, "float32")]
)
def test_the_usual_precision_is_the_one_that_multiplies_faster(
    monkeypatch: pytest.MonkeyPatch, float32: float, bf16: float, usual: str
) -> None:
    monkeypatch.setattr(speed, "measure_rates", lambda: Rates(float32, bf16, 0.0))
    assert usual_precision() == usual
    assert reason_for(usual).startswith("measured here: float32")
    other = "float32" if usual == "bf16" else "bf16"
    assert reason_for(other).startswith("not the faster one")


@pytest.mark.usefixtures("cache")
def test_rates_are_measured_once_for_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([Rates(1e9, 2e9, 3e9), Rates(4e9, 2e9, 3e9)])
    monkeypatch.setattr(speed, "measure_rates", lambda: next(rates))
    monkeypatch.setattr(speed, "is_quiet", lambda: True)
    first = product_rates()
    speed._product_rates.cache_clear()  # as in another process
    assert product_rates() == first


@pytest.mark.usefixtures("cache")
def test_rates_that_were_measured_beside_other_programs_are_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = iter([Rates(1e9, 2e9, 3e9), Rates(4e9, 1e9, 9e9), Rates(8e9, 8e9, 8e9)])
    quiet = iter([False, True])
    monkeypatch.setattr(speed, "measure_rates", lambda: next(rates))
    monkeypatch.setattr(speed, "is_quiet", lambda: next(quiet))
    known = []
    for _ in range(3):
        speed._product_rates.cache_clear()  # as in another process
        known.append(product_rates())
    assert known == [Rates(1e9, 2e9, 3e9), Rates(4e9, 2e9, 9e9), Rates(4e9, 2e9, 9e9)]


@pytest.mark.parametrize("content", ["", "[]", '{"a": ', '{"a": 1}', "\x00"])
def test_a_damaged_cache_is_measured_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    cache.mkdir(parents=True)
    (cache / RATES_FILE).write_text(content)
    monkeypatch.setattr(speed, "measure_rates", lambda: Rates(1e9, 2e9, 3e9))
    assert product_rates() == Rates(1e9, 2e9, 3e9)


@pytest.mark.usefixtures("cache")
def test_a_folder_that_cannot_be_written_to_remembers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    remember(RATES_FILE, {"a": 1})
    assert recall(RATES_FILE) == {}


@pytest.mark.usefixtures("cache")
def test_a_user_without_a_home_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    remember(RATES_FILE, {"a": 1})
    assert recall(RATES_FILE) == {}


def test_the_highest_peak_is_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for measured, known in ((2e9, 2e9), (1e9, 2e9), (3e9, 3e9)):
        monkeypatch.setattr(speed, "_peaks", {})
        monkeypatch.setattr(speed, "matrix_peak", lambda *_, rate=measured: rate)
        assert known_matrix_peak("float32") == known
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert known_matrix_peak("float32") == 3e9


@pytest.mark.usefixtures("cache")
def test_a_process_measures_its_peak_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([2e9, 3e9])
    monkeypatch.setattr(speed, "matrix_peak", lambda *_: next(rates))
    peaks = [known_matrix_peak(precision) for precision in ("float32", "float32", "bf16")]
    assert peaks == [2e9, 2e9, 3e9]
