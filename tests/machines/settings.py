"""The settings of a machine, as environment variables make them out of this one."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertwright.machine.description import has_instructions

COMPILERS = re.compile(r"(.*-)?(g\+\+|gcc|c\+\+|cc|clang|clang\+\+|cpp)(-\d+)?$")

IN_PLACE_OF_NATIVE = """#!/bin/bash
# A compiler to which -march=native means generic tuning, since it is older than the processor.
arguments=()
for argument in "$@"; do
    [ "$argument" = -march=native ] && argument=-march=x86-64-v4
    arguments+=("$argument")
done
exec g++ "${arguments[@]}"
"""

GENERIC = """#!/bin/sh
# A compiler that overrides the flags it is called with, and miscompiles tiles of bfloat16.
exec g++ "$@" -march=x86-64-v4 -mavx512bf16 -mtune=generic -ftree-slp-vectorize
"""


@dataclass(frozen=True)
class Setting:
    """A machine: its environment variables, the instructions that it needs, what doctor must find
    wrong, and whether it is a slower one, which trains on less text in the same time."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    instructions: str | None = None
    finding: str | None = None
    slower: bool = False

    @property
    def possible(self) -> bool:
        """Whether this processor has the instructions."""
        return self.instructions is None or has_instructions(self.instructions)

    def environment(self, caches: Path) -> dict[str, str]:
        """Return the environment of a process, with empty caches in a folder."""
        folders = {
            "XDG_CACHE_HOME": str(caches / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "code"),
        }
        return {**os.environ, **folders, **self.variables}


def settings(folder: Path) -> list[Setting]:
    """Return every setting, this machine as it is first; ``folder`` takes their compilers."""
    replacing = _program(folder / "in-place-of-native-g++", IN_PLACE_OF_NATIVE)
    generic = _program(folder / "generic-g++", GENERIC)
    avx2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    bare = {"PATH": str(_path_without_compilers(folder / "bin"))}
    return [
        Setting("as it is"),
        Setting("AVX2 alone", avx2, "avx2", slower=True),
        Setting("x86-64-v4 in place of native", {"CXX": replacing}, "avx512_bf16"),
        Setting("generic tuning for x86-64-v4", {"CXX": generic}, "avx512_bf16", "miscompiles"),
        Setting("no compiler", bare, finding="no C++ compiler"),
        Setting("a compiler that fails", {"CXX": "/bin/false"}, finding="No working C++ compiler"),
    ]


def possible_settings() -> Iterator[tuple[Setting, Path]]:
    """Yield every setting that this processor can take, with an empty folder of its own; say which
    are left out."""
    with tempfile.TemporaryDirectory() as path:
        for setting in settings(Path(path)):
            if not setting.possible:
                print(f"{setting.name}: left out, this processor has no {setting.instructions}")
                continue
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                yield setting, Path(folder)


def _program(file: Path, text: str) -> str:
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def _path_without_compilers(folder: Path) -> Path:
    """Return a folder with a link to every program of the path that is no compiler."""
    folder.mkdir()
    for directory in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).glob("*"):
            if not COMPILERS.fullmatch(program.name):
                link = folder / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return folder
