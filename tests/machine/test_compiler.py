"""Compiled code is for an instruction set that is named, and its toolchain is known by name."""

import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bertwright.machine import compiler
from bertwright.machine.compiled import Compilable, largest_error
from bertwright.machine.compiler import (
    compilation_obstacle,
    compiler_version,
    cpp_compiler,
    fingerprint,
    target_flags,
    toolchain,
)


@pytest.fixture(autouse=True)
def _forget_the_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CPP_MARCH", raising=False)
    compiler_version.cache_clear()
    toolchain.cache_clear()


@pytest.mark.parametrize(
    ("capability", "level"),
    [
        ("AVX512", "x86-64-v4"),
        ("AVX512_VNNI", "x86-64-v4"),
        ("AMX", "x86-64-v4"),
        ("AVX2", "x86-64-v3"),
        ("DEFAULT", "x86-64"),
        ("something new", "x86-64"),
    ],
)
def test_code_is_for_the_instruction_set_that_pytorch_computes_with(
    monkeypatch: pytest.MonkeyPatch, capability: str, level: str
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(compiler.platform, "machine", lambda: "x86_64")
    flags = target_flags().split()
    assert flags[0] == level
    assert any(flag.startswith("-mtune=") for flag in flags)
    assert "native" not in " ".join(flags)


def test_other_processors_keep_the_flags_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.platform, "machine", lambda: "aarch64")
    assert target_flags() is None


def test_bfloat16_instructions_are_used_where_there_are_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(compiler.platform, "machine", lambda: "x86_64")
    for has in (True, False):
        monkeypatch.setattr(compiler, "has_instructions", lambda name, has=has: has)
        assert ("-mavx512bf16" in target_flags()) == has


def test_a_machine_without_a_compiler_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert cpp_compiler() is None
    assert compiler_version().startswith("no C++ compiler")
    assert toolchain()


def test_another_compiler_of_one_version_is_another_toolchain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    for number in range(3):
        wrapper = tmp_path / f"wrapper-{number}"
        wrapper.write_text("#!/bin/sh\necho 'g++ 12.2.0'\n" + "#" * number)
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(wrapper))
        compiler_version.cache_clear()
        toolchain.cache_clear()
        assert compiler_version() == "g++ 12.2.0"
        names.add(fingerprint("one graph"))
    assert len(names) == 3


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "no program", ""])
def test_a_compiler_that_fails_has_a_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(content)
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert str(broken) in compiler_version()


def test_a_compilable_is_plain_until_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: lambda x: ("compiled", x))
    function = Compilable(lambda x: ("definition", x), plain=lambda x: ("plain", x))
    assert function(1) == ("plain", 1)
    function.compile()
    assert function(1) == ("compiled", 1)


def test_nothing_stands_against_a_compiler_and_a_folder_for_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "new" / "folder"))
    monkeypatch.setenv("CXX", sys.executable)
    assert compilation_obstacle() is None


@pytest.mark.parametrize("name", ["no-such-compiler", "", "/no/such/file"])
def test_a_compiler_that_is_not_there_is_an_obstacle(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("CXX", name)
    assert "no C++ compiler" in compilation_obstacle()


def test_a_folder_that_cannot_be_written_to_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "folder"))
    monkeypatch.setenv("CXX", sys.executable)
    assert "TORCHINDUCTOR_CACHE_DIR" in compilation_obstacle()


def test_a_folder_that_runs_no_code_is_an_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", sys.executable)
    flags = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(compiler.os, "statvfs", lambda folder: flags)
    assert "noexec" in compilation_obstacle()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([torch.tensor([1.0, 2.0])], 0.0),
        ([torch.tensor([1.0, torch.nan])], float("inf")),
        ([torch.tensor([1.0, 2.0 * 1.1])], 0.2 / (2.0 + 1.5)),
    ],
)
def test_the_largest_error_is_relative(value: list[torch.Tensor], error: float) -> None:
    assert largest_error(value, [torch.tensor([1.0, 2.0])]) == pytest.approx(error, abs=1e-6)


def test_infinities_and_steps_are_right_where_they_are_the_same() -> None:
    right = torch.tensor([-torch.inf, 1.0]), torch.tensor([3, 4], dtype=torch.uint8)
    off = torch.tensor([torch.inf, 1.0]), torch.tensor([3, 6], dtype=torch.uint8)
    assert largest_error(right, right) == 0.0
    assert largest_error(off[0], right[0]) > 1
    assert largest_error(off[1], right[1]) == 1.0
    assert largest_error(right[1] + 1, right[1]) == 0.0


def test_the_instruction_set_can_be_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CPP_MARCH", "native")
    assert target_flags() == "native"
