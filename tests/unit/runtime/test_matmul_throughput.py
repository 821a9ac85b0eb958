"""Measured matrix throughput and the default precision."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertwright.core.cache_folder import cache_folder, read_cache, update_cache
from bertwright.runtime import matmul_throughput as speed
from bertwright.runtime.matmul_throughput import (
    MATMUL_THROUGHPUT_FILE,
    MatmulThroughput,
    default_precision,
    explain_precision,
    matmul_peak,
    matmul_throughput,
    measure_matmul_peak,
    measure_matmul_throughput,
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder; forget measurements of this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(speed, "_matmul_peaks", {})
    speed._cached_matmul_throughput.cache_clear()
    yield cache_folder()
    speed._cached_matmul_throughput.cache_clear()


def test_measured_peak_is_positive() -> None:
    assert 0 < measure_matmul_peak("float32", seconds=0.01) < math.inf


def test_bfloat16_support_respects_the_onednn_limit() -> None:
    program = (
        "from bertwright.runtime.matmul_throughput import supports_bfloat16\n"
        "print(supports_bfloat16())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "False"


def test_measured_throughput() -> None:
    rates = measure_matmul_throughput(seconds=0.01)
    assert 0 < rates.float32 < math.inf
    assert 0 < rates.bf16 < math.inf
    assert 0 <= rates.int8 < math.inf


@pytest.mark.processor
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("float32", "bf16", "default"), [(170e9, 400e9, "bf16"), (337e9, 168e9, "float32")]
)
def test_default_precision_is_the_faster_one(
    monkeypatch: pytest.MonkeyPatch, float32: float, bf16: float, default: str
) -> None:
    monkeypatch.setattr(
        speed, "measure_matmul_throughput", lambda: MatmulThroughput(float32, bf16, 0.0)
    )
    assert default_precision() == default
    assert explain_precision(default).startswith("measured here: float32")
    other = "float32" if default == "bf16" else "bf16"
    assert explain_precision(other).startswith("not the faster one")


@pytest.mark.usefixtures("cache")
def test_throughput_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([MatmulThroughput(1e9, 2e9, 3e9), MatmulThroughput(4e9, 2e9, 3e9)])
    monkeypatch.setattr(speed, "measure_matmul_throughput", lambda: next(rates))
    monkeypatch.setattr(speed, "is_idle", lambda: True)
    first = matmul_throughput()
    speed._cached_matmul_throughput.cache_clear()  # as in another process
    assert matmul_throughput() == first


@pytest.mark.usefixtures("cache")
def test_throughput_of_a_busy_machine_is_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = iter(
        [
            MatmulThroughput(1e9, 2e9, 3e9),
            MatmulThroughput(4e9, 1e9, 9e9),
            MatmulThroughput(8e9, 8e9, 8e9),
        ]
    )
    idle = iter([False, True])
    monkeypatch.setattr(speed, "measure_matmul_throughput", lambda: next(rates))
    monkeypatch.setattr(speed, "is_idle", lambda: next(idle))
    cached = []
    for _ in range(3):
        speed._cached_matmul_throughput.cache_clear()  # as in another process
        cached.append(matmul_throughput())
    assert cached == [
        MatmulThroughput(1e9, 2e9, 3e9),
        MatmulThroughput(4e9, 2e9, 9e9),
        MatmulThroughput(4e9, 2e9, 9e9),
    ]


@pytest.mark.parametrize("content", ["", "[]", '{"a": ', '{"a": 1}', "\x00"])
def test_damaged_cache_is_ignored(
    cache: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    cache.mkdir(parents=True)
    (cache / MATMUL_THROUGHPUT_FILE).write_text(content)
    monkeypatch.setattr(speed, "measure_matmul_throughput", lambda: MatmulThroughput(1e9, 2e9, 3e9))
    assert matmul_throughput() == MatmulThroughput(1e9, 2e9, 3e9)


@pytest.mark.usefixtures("cache")
def test_unwritable_cache_folder_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    update_cache(MATMUL_THROUGHPUT_FILE, {"a": 1})
    assert read_cache(MATMUL_THROUGHPUT_FILE) == {}


@pytest.mark.usefixtures("cache")
def test_missing_home_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    update_cache(MATMUL_THROUGHPUT_FILE, {"a": 1})
    assert read_cache(MATMUL_THROUGHPUT_FILE) == {}


def test_highest_peak_is_cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for measured, cached in ((2e9, 2e9), (1e9, 2e9), (3e9, 3e9)):
        monkeypatch.setattr(speed, "_matmul_peaks", {})
        monkeypatch.setattr(speed, "measure_matmul_peak", lambda *_, rate=measured: rate)
        assert matmul_peak("float32") == cached
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert matmul_peak("float32") == 3e9


@pytest.mark.usefixtures("cache")
def test_peak_is_measured_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([2e9, 3e9])
    monkeypatch.setattr(speed, "measure_matmul_peak", lambda *_: next(rates))
    peaks = [matmul_peak(precision) for precision in ("float32", "float32", "bf16")]
    assert peaks == [2e9, 2e9, 3e9]
