"""Compiler flags, toolchain hashes and compilable functions."""

import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bertwright.runtime import compiler
from bertwright.runtime.compiled_functions import CompilableFunction, max_relative_error
from bertwright.runtime.compiler import (
    compilation_obstacle,
    compiler_version,
    cpp_compiler,
    march_flags,
    toolchain,
    toolchain_hash,
)


@pytest.fixture(autouse=True)
def _clear_toolchain_cache(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_march_flags_follow_the_cpu_capability(
    monkeypatch: pytest.MonkeyPatch, capability: str, level: str
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(compiler.platform, "machine", lambda: "x86_64")
    flags = march_flags().split()
    assert flags[0] == level
    assert any(flag.startswith("-mtune=") for flag in flags)
    assert "native" not in " ".join(flags)


def test_march_flags_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.platform, "machine", lambda: "aarch64")
    assert march_flags() is None


def test_bfloat16_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(compiler.platform, "machine", lambda: "x86_64")
    for has in (True, False):
        monkeypatch.setattr(compiler, "has_instruction_set", lambda name, has=has: has)
        assert ("-mavx512bf16" in march_flags()) == has


def test_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert cpp_compiler() is None
    assert compiler_version().startswith("no C++ compiler")
    assert toolchain()


def test_toolchain_hash_distinguishes_compilers_of_the_same_version(
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
        names.add(toolchain_hash("one graph"))
    assert len(names) == 3


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "no program", ""])
def test_version_of_a_broken_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(content)
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert str(broken) in compiler_version()


def test_function_is_eager_until_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: lambda x: ("compiled", x))
    function = CompilableFunction(lambda x: ("definition", x), eager=lambda x: ("plain", x))
    assert function(1) == ("plain", 1)
    function.compile()
    assert function(1) == ("compiled", 1)


def test_no_compilation_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "new" / "folder"))
    monkeypatch.setenv("CXX", sys.executable)
    assert compilation_obstacle() is None


@pytest.mark.parametrize("name", ["no-such-compiler", "", "/no/such/file"])
def test_missing_compiler_is_an_obstacle(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CXX", name)
    assert "no C++ compiler" in compilation_obstacle()


def test_unwritable_cache_is_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "folder"))
    monkeypatch.setenv("CXX", sys.executable)
    assert "TORCHINDUCTOR_CACHE_DIR" in compilation_obstacle()


def test_noexec_cache_is_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_max_relative_error(value: list[torch.Tensor], error: float) -> None:
    assert max_relative_error(value, [torch.tensor([1.0, 2.0])]) == pytest.approx(error, abs=1e-6)


def test_max_relative_error_of_infinities_and_integers() -> None:
    expected = torch.tensor([-torch.inf, 1.0]), torch.tensor([3, 4], dtype=torch.uint8)
    wrong = torch.tensor([torch.inf, 1.0]), torch.tensor([3, 6], dtype=torch.uint8)
    assert max_relative_error(expected, expected) == 0.0
    assert max_relative_error(wrong[0], expected[0]) > 1
    assert max_relative_error(wrong[1], expected[1]) == 1.0
    assert max_relative_error(expected[1] + 1, expected[1]) == 0.0


def test_march_flags_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CPP_MARCH", "native")
    assert march_flags() == "native"
