"""No more threads are used than a container allows, and than multiply faster than fewer."""

import os
from pathlib import Path

import pytest
import torch

from bertwright.machine import cores, process, speed
from bertwright.machine.cache import remember
from bertwright.machine.cores import cpu_quota, num_cores
from bertwright.machine.process import THREADS_FILE, fewer_threads, threads_key
from bertwright.machine.speed import useful_threads


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
def test_the_quota_of_a_container_is_read(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert cpu_quota(tmp_path) == quota


def test_a_quota_bounds_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: 0.5)
    assert num_cores() == 1


@pytest.mark.parametrize(
    ("cores", "of_all", "measured", "threads"),
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
def test_fewer_threads_are_taken_where_more_are_no_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    of_all: int,
    measured: object,
    threads: int | None,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "num_cores", lambda: cores)
    monkeypatch.setattr(os, "cpu_count", lambda: of_all)
    remember(THREADS_FILE, {threads_key(): measured})
    assert fewer_threads() == threads


@pytest.mark.parametrize(
    ("seconds", "useful"), [({1: 1.0, 2: 1.0}, 1), ({1: 1.0, 2: 0.5}, 2), ({1: 1.0, 2: 3.0}, 1)]
)
def test_threads_are_useful_where_they_are_faster(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], useful: int
) -> None:
    monkeypatch.setattr(speed, "_seconds", lambda product: seconds[torch.get_num_threads()])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert useful_threads(seconds=0.01) == useful
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
