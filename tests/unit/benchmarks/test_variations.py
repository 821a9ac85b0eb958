"""Variations run in interleaved rounds and are compared with the first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import variations
from benchmarks.__main__ import app
from benchmarks.variations import checkout_variations, compare, compiler_flag_variations
from bertwright.core.errors import UserError

SECONDS = {"other checkout": 3.0, "this checkout": 2.0}


class FakeProcess:
    """A worker process with fixed step times."""

    def __init__(
        self, program: str | Path, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        self.seconds = SECONDS["other checkout" if "PYTHONPATH" in environment else "this checkout"]
        assert Path(environment["TORCHINDUCTOR_CACHE_DIR"]).is_dir()

    def __enter__(self) -> "FakeProcess":
        return self

    def __exit__(self, *_: object) -> None: ...

    def seconds_per_step(self, num_steps: int) -> float:
        return self.seconds


def test_every_workload_has_a_row_for_each_variation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "src" / "bertwright").mkdir(parents=True)
    monkeypatch.setattr(variations, "TimedProcess", FakeProcess)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    lines: list[str] = []
    rows = compare(checkout_variations(tmp_path), ["tiny"], True, 2, lines.append)
    assert [(row["workload"], row["variation"], row["speed"]) for row in rows] == [
        ("pretrain tiny", "other checkout", 1.0),
        ("pretrain tiny", "this checkout", 1.5),
        ("embed 500 sentences", "other checkout", 1.0),
        ("embed 500 sentences", "this checkout", 1.5),
    ]
    expected = "other checkout 3000 ms, this checkout 2000 ms"
    assert lines == [f"round {n} of 2: {expected}" for n in (1, 2)] * 2
    assert variations.EMBEDDING_WORKER.is_file()


def test_our_flags_are_compared_with_native_code() -> None:
    native, ours = compiler_flag_variations()
    assert native.environment == {"TORCHINDUCTOR_CPP_MARCH": "native"}
    assert not ours.environment


def test_a_folder_that_is_not_a_checkout_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it has no src/bertwright"):
        CliRunner().invoke(app, ["checkouts", str(tmp_path)], catch_exceptions=False)
