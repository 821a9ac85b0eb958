"""The number of threads respects the container's quota and measurements."""

import os
from pathlib import Path

import pytest
import torch

from bertwright.core import hardware as cores
from bertwright.core.cache_folder import update_cache
from bertwright.core.hardware import cpu_quota, memory_bytes, num_cores
from bertwright.runtime import matmul_throughput as speed
from bertwright.runtime import process
from bertwright.runtime.matmul_throughput import measure_num_threads
from bertwright.runtime.process import THREADS_FILE, recommended_num_threads, threads_cache_key


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
    ],
)
def test_cpu_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("limit", "is_limited"), [("1000000", True), ("max", False)])
def test_memory_is_that_of_the_container(tmp_path: Path, limit: str, is_limited: bool) -> None:
    total = memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    assert memory_bytes(tmp_path) == (1_000_000 if is_limited else total)


def test_quota_limits_num_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: 0.5)
    assert num_cores() == 1


@pytest.mark.parametrize(
    ("cores", "all_cores", "measured", "threads"),
    [
        (8, 8, None, None),
        (8, 8, 8, None),
        (8, 8, 4, 4),
        (2, 64, None, 2),
        (2, 64, 4, 2),
        (8, 8, 0, None),
        (8, 8, "4", None),
    ],
)
def test_recommended_num_threads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    all_cores: int,
    measured: object,
    threads: int | None,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "num_cores", lambda: cores)
    monkeypatch.setattr(os, "cpu_count", lambda: all_cores)
    update_cache(THREADS_FILE, {threads_cache_key(): measured})
    assert recommended_num_threads() == threads


@pytest.mark.parametrize(
    ("seconds", "expected"), [({1: 1.0, 2: 1.0}, 1), ({1: 1.0, 2: 0.5}, 2), ({1: 1.0, 2: 3.0}, 1)]
)
def test_measure_num_threads(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], expected: int
) -> None:
    monkeypatch.setattr(speed, "_time_call", lambda product: seconds[torch.get_num_threads()])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert measure_num_threads(seconds=0.01) == expected
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
