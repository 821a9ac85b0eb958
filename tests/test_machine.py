"""The machine describes itself, and its peak is a rate that products reach."""

import math
from pathlib import Path

import pytest

from bertwright import machine
from bertwright.machine import (
    description,
    known_matrix_peak,
    matrix_peak,
    num_cores,
    seconds_since_start,
    versions,
)


def test_the_description_names_the_cores() -> None:
    assert f"{num_cores()} cores" in description()


def test_versions_leave_out_what_is_not_installed() -> None:
    assert versions("torch", "no-such-library").keys() == {"python", "torch"}


def test_the_peak_is_a_positive_rate() -> None:
    assert 0 < matrix_peak("float32", seconds=0.01) < math.inf


def test_bfloat16_is_usual_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    for native, precision in ((True, "bf16"), (False, "float32")):
        monkeypatch.setattr(machine, "multiplies_bfloat16", lambda device, native=native: native)
        assert machine.usual_precision() == precision


def test_the_highest_peak_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for measured, known in ((2e9, 2e9), (1e9, 2e9), (3e9, 3e9)):
        monkeypatch.setattr(machine, "_peaks", {})
        monkeypatch.setattr(machine, "matrix_peak", lambda *_, rate=measured: rate)
        assert known_matrix_peak("float32") == known
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert known_matrix_peak("float32") == 3e9


def test_a_process_measures_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "_peaks", {})
    rates = iter([2e9, 3e9])
    monkeypatch.setattr(machine, "matrix_peak", lambda *_: next(rates))
    found = [known_matrix_peak(precision) for precision in ("float32", "float32", "bf16")]
    assert found == [2e9, 2e9, 3e9]


def test_this_process_began_before_now() -> None:
    first, second = seconds_since_start(), seconds_since_start()
    assert 0 < first <= second
