"""Compiled loops are used where they give the right result, and nowhere else."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertwright.core.messages import print_once
from bertwright.runtime import checked_compilation
from bertwright.runtime.checked_compilation import compile_checked


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(checked_compilation, "compilation_obstacle", lambda: None)
    print_once.cache_clear()


def use_compiler(monkeypatch: pytest.MonkeyPatch, compiler: Callable[..., Any]) -> list[str]:
    """Make ``torch.compile`` return what a compiler makes of a function; list its calls."""
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


def test_correct_code_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = use_compiler(monkeypatch, lambda function: lambda *args: function(*args))
    run = compile_checked(double)
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
def test_wrong_code_is_detected_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: Callable[..., Any],
) -> None:
    calls = use_compiler(monkeypatch, wrong)
    run = compile_checked(double)
    for _ in range(3):
        assert torch.equal(run(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "double" in line
    assert "miscompiles it" in line
    again = compile_checked(double)  # as in another process
    assert torch.equal(again(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"]


def test_every_class_of_shapes_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_for_one_row(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: function(x if len(x) > 1 else 3 * x)

    use_compiler(monkeypatch, wrong_for_one_row)
    run = compile_checked(double)
    for batch_size in (5, 1, 5):
        assert torch.equal(run(torch.ones(batch_size, 4))[0], torch.full((batch_size, 4), 2.0))


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("x")])
def test_a_failing_compiler_leaves_the_function_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    calls = use_compiler(monkeypatch, lambda function: fail)
    run = compile_checked(double)
    for _ in range(2):
        assert torch.equal(run(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert calls == ["double"]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_a_compiler_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = use_compiler(monkeypatch, lambda function: function)
    monkeypatch.setattr(checked_compilation, "compilation_obstacle", lambda: "no compiler")
    run, other = compile_checked(double), compile_checked(double)
    for function in (run, other, run):
        assert torch.equal(function(torch.ones(3, 4))[0], torch.full((3, 4), 2.0))
    assert not calls
    assert capsys.readouterr().err == "kernels are not compiled: no compiler\n"


def test_errors_of_the_function_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    use_compiler(monkeypatch, lambda function: function)

    def refuse(x: Tensor) -> Tensor:
        raise ValueError(os.linesep)

    with pytest.raises(ValueError, match=os.linesep):
        compile_checked(refuse)(torch.ones(2))
