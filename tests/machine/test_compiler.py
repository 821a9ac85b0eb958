"""Compiled code is for an instruction set that is named, and its toolchain is known by name."""

import stat
from pathlib import Path

import pytest
import torch

from bertwright.machine import compiler
from bertwright.machine.compiler import (
    Compilable,
    compiler_version,
    cpp_compiler,
    fingerprint,
    target_flags,
    toolchain,
)


@pytest.fixture(autouse=True)
def _forget_the_toolchain() -> None:
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
