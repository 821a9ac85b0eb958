"""Settings that simulate other machines by environment variables."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertwright.runtime.device import has_instruction_set

COMPILERS = re.compile(r"(.*-)?(g\+\+|gcc|c\+\+|cc|clang|clang\+\+|cpp)(-\d+)?$")

NATIVE_AS_V4 = """#!/bin/bash
# A compiler that is older than the processor, for which -march=native is generic tuning.
arguments=()
for argument in "$@"; do
    [ "$argument" = -march=native ] && argument=-march=x86-64-v4
    arguments+=("$argument")
done
exec g++ "${arguments[@]}"
"""

GENERIC = """#!/bin/sh
# A compiler that overrides its flags and miscompiles bfloat16 tiles.
exec g++ "$@" -march=x86-64-v4 -mavx512bf16 -mtune=generic -ftree-slp-vectorize
"""


@dataclass(frozen=True)
class Setting:
    """A simulated machine.

    Attributes:
        variables: environment variables.
        instructions: instruction set that the processor must have.
        finding: text of the check of doctor that must fail.
        slower: the machine trains on less text in the same time.
    """

    name: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    instructions: str | None = None
    finding: str | None = None
    slower: bool = False

    @property
    def possible(self) -> bool:
        """True if this processor has the instruction set."""
        return self.instructions is None or has_instruction_set(self.instructions)

    def environment(self, caches: Path) -> dict[str, str]:
        """Return the environment of a process, with caches in a folder."""
        folders = {
            "XDG_CACHE_HOME": str(caches / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "code"),
        }
        return {**os.environ, **folders, **self.variables}


def settings(folder: Path) -> list[Setting]:
    """Return every setting, the unchanged machine first; compilers are written into ``folder``."""
    native_as_v4 = _program(folder / "native-as-v4-g++", NATIVE_AS_V4)
    generic = _program(folder / "generic-g++", GENERIC)
    avx2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    bare = {"PATH": str(_path_without_compilers(folder / "bin"))}
    return [
        Setting("unchanged"),
        Setting("AVX2 only", avx2, "avx2", slower=True),
        Setting("x86-64-v4 instead of native", {"CXX": native_as_v4}, "avx512_bf16"),
        Setting("generic tuning for x86-64-v4", {"CXX": generic}, "avx512_bf16", "miscompiles"),
        Setting("no compiler", bare, finding="no C++ compiler"),
        Setting("a failing compiler", {"CXX": "/bin/false"}, finding="No working C++ compiler"),
    ]


def possible_settings() -> Iterator[tuple[Setting, Path]]:
    """Yield every setting that this processor supports, with an empty folder; print the others."""
    with tempfile.TemporaryDirectory() as path:
        for setting in settings(Path(path)):
            if not setting.possible:
                print(f"{setting.name}: skipped, this processor has no {setting.instructions}")
                continue
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                yield setting, Path(folder)


def _program(file: Path, text: str) -> str:
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def _path_without_compilers(folder: Path) -> Path:
    """Return a folder with links to all programs of PATH except compilers."""
    folder.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if not COMPILERS.fullmatch(program.name):
                link = folder / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return folder
