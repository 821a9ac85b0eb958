"""Compiled loops are used where they compute what is written, and nowhere else."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertwright.encoder.kernels import fused as fused_module
from bertwright.encoder.kernels.fused import fused
from bertwright.notices import say_once


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fused_module, "compilation_obstacle", lambda: None)
    say_once.cache_clear()


def made_by(monkeypatch: pytest.MonkeyPatch, compiler: Callable[..., Any]) -> list[str]:
    """Let ``torch.compile`` return what a compiler makes of a function; list its calls."""
    calls: list[str] = []

    def compile_function(function: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
        compiled = compiler(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(function.__name__)
            return compiled(*args, **kwargs)

        return call

    monkeypatch.setattr(torch, "compile", compile_function)
    return calls


def double(x: Tensor, addend: float = 0.0) -> tuple[Tensor, Tensor]:
    return 2 * x + addend, (x > 0).to(torch.uint8)


def test_right_code_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = made_by(monkeypatch, lambda function: lambda *args: function(*args))
    run = fused(double)
    for _ in range(3):
        assert torch.equal(run(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda function: lambda x: (function(x)[0] * 1.5, function(x)[1]),
        lambda function: lambda x: (function(x)[0] * torch.nan, function(x)[1]),
        lambda function: lambda x: (function(x)[0], function(x)[1] + 5),
        lambda function: lambda x: (function(x)[0].index_fill(0, torch.tensor(1), 9), x.byte()),
    ],
)
def test_wrong_code_is_found_said_once_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: Callable[..., Any],
) -> None:
    calls = made_by(monkeypatch, wrong)
    run = fused(double)
    for _ in range(3):
        assert torch.equal(run(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "double" in line
    assert "miscompiles it" in line
    again = fused(double)  # as in another process
    assert torch.equal(again(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"]


def test_the_first_of_every_class_of_shapes_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_for_one_row(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: function(x if len(x) > 1 else 3 * x)

    made_by(monkeypatch, wrong_for_one_row)
    run = fused(double)
    for rows in (5, 1, 5):
        assert torch.equal(run(torch.ones(rows, 4))[0], torch.full((rows, 4), 2.0))


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("x")])
def test_a_compiler_that_fails_leaves_the_function_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    calls = made_by(monkeypatch, lambda function: fail)
    run = fused(double)
    for _ in range(2):
        assert torch.equal(run(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_cannot_be_compiled_here_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = made_by(monkeypatch, lambda function: function)
    monkeypatch.setattr(fused_module, "compilation_obstacle", lambda: "no compiler")
    run, other = fused(double), fused(double)
    for function in (run, other, run):
        assert torch.equal(function(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert not calls
    assert capsys.readouterr().err == "kernels are not compiled: no compiler\n"


def test_an_error_of_the_function_itself_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made_by(monkeypatch, lambda function: function)

    def refuse(x: Tensor) -> Tensor:
        raise ValueError(os.linesep)

    with pytest.raises(ValueError, match=os.linesep):
        fused(refuse)(torch.ones(2))
