"""Variations of the program take turns, and are held against the first of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bertwright.bench import variations
from bertwright.bench.variations import compare, of_checkouts, of_flags
from bertwright.cli.application import app
from bertwright.errors import UserError

SECONDS = {"before": 3.0, "now": 2.0}


class Contestant:
    """Takes as long for a step as its variation says."""

    def __init__(
        self, program: str | Path, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        self.seconds = SECONDS["before" if "PYTHONPATH" in environment else "now"]
        assert Path(environment["TORCHINDUCTOR_CACHE_DIR"]).is_dir()

    def __enter__(self) -> "Contestant":
        return self

    def __exit__(self, *_: object) -> None: ...

    def seconds_per_step(self, num_steps: int) -> float:
        return self.seconds


def test_every_workload_has_a_row_for_each_variation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "src" / "bertwright").mkdir(parents=True)
    monkeypatch.setattr(variations, "Contestant", Contestant)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    said: list[str] = []
    rows = compare(of_checkouts(tmp_path), ["tiny"], True, 2, said.append)
    assert [(row["what"], row["variation"], row["speed"]) for row in rows] == [
        ("pretrain tiny", "before", 1.0),
        ("pretrain tiny", "now", 1.5),
        ("embed 500 sentences", "before", 1.0),
        ("embed 500 sentences", "now", 1.5),
    ]
    assert said == [f"round {n} of 2: before 3000 ms, now 2000 ms" for n in (1, 2)] * 2


def test_flags_are_held_against_native_code() -> None:
    native, ours = of_flags()
    assert native.variables == {"TORCHINDUCTOR_CPP_MARCH": "native"}
    assert not ours.variables


def test_a_folder_that_is_no_checkout_is_named(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["bench", "before", str(tmp_path)])
    assert isinstance(ended.exception, UserError)
    assert "it has no src/bertwright" in str(ended.exception)
