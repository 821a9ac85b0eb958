"""Which tests run a line of code."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.mutants import Mutant

PLUGIN = Path(__file__).with_name("coverage_plugin.py")

FILES_AT_A_TIME = 12
"""Test files in one process: what was measured before an interruption is kept."""


@dataclass(frozen=True)
class CoverageMap:
    """What the tests of a package run.

    Attributes:
        durations: seconds of the processor by test.
        lines: the tests of every line of every file.
        imported: the lines of every file that run when it is imported.
        modules: all modules that were imported.
    """

    durations: Mapping[str, float]
    lines: Mapping[str, Mapping[str, Sequence[str]]]
    imported: Mapping[str, Collection[int]]
    modules: Collection[str]

    def tests_of(self, mutant: Mutant, max_seconds: float) -> list[str]:
        """Return the tests that can notice a mutant, the fastest first, for ``max_seconds``.

        These are the tests that run its lines. Code that runs when it is imported may define what
        any test reads: for half of the time, tests that run the file come first, then all others.
        """
        lines, imported = self.lines.get(mutant.path, {}), self.imported.get(mutant.path, ())
        within = range(mutant.start[0], mutant.stop[0] + 1)
        covering = {test for line in within for test in lines.get(str(line), ())}
        others, limits = set[str](), (max_seconds, max_seconds)
        if mutant.function_lines is None or (not covering and any(n in imported for n in within)):
            covering = {test for tests in lines.values() for test in tests}
            others, limits = self.durations.keys() - covering, (max_seconds / 2, max_seconds)
        selected, total = list[str](), 0.0
        for tests, limit in zip((covering, others), limits, strict=True):
            for test in sorted(tests, key=lambda t: (self.durations[t], t)):
                if total + self.durations[test] > limit and selected:
                    break
                total += self.durations[test]
                selected.append(test)
        return selected


def measure_coverage(
    tree: Path, tests: Mapping[str, Iterable[str]], package_names: Iterable[str], cache: Path
) -> dict[str, CoverageMap]:
    """Return what the tests of each of the packages run.

    Each test file is run once, for all packages, and again when it has changed, or its fixtures, or
    a module that it ran a line of, or the names of the modules of a package that it tests.

    Args:
        tests: the test files or folders of every package.

    Raises SystemExit if a test fails without a mutant.
    """
    cache.mkdir(parents=True, exist_ok=True)
    files_of = {
        package: sorted(
            {str(f.relative_to(tree)) for test in paths for f in _test_files(tree / test)}
        )
        for package, paths in tests.items()
    }
    support = sorted((tree / "tests/support").rglob("*.py"))
    cached: dict[str, Path] = {}
    for file in sorted({file for package in package_names for file in files_of[package]}):
        packages = [package for package, files in files_of.items() if file in files]
        modules = [str(f.relative_to(tree)) for p in packages for f in _modules(tree, p)]
        conftests = (folder / "conftest.py" for folder in (tree / file).parents)
        tested = [tree / file, *support, *filter(Path.exists, conftests)]
        named = " ".join([_digest([PLUGIN]), file, *sorted(modules)])
        cached[file] = cache / f"{_digest(tested, named)}.json"
    stale = [file for file, path in cached.items() if not _is_fresh(path, tree)]
    if stale:
        print(f"running {len(stale)} test files once ...", file=sys.stderr, flush=True)
    for start in range(0, len(stale), FILES_AT_A_TIME):
        files = stale[start : start + FILES_AT_A_TIME]
        measured = _run_with_coverage(tree, tests, files, cache / f"{os.getpid()}.part")
        for file in files:
            part = cached[file].with_suffix(".part")
            part.write_text(json.dumps(_part_of(measured, file, tree)), encoding="utf-8")
            part.rename(cached[file])
    parts = {file: json.loads(path.read_text(encoding="utf-8")) for file, path in cached.items()}
    return {p: _joined([parts[file] for file in files_of[p]]) for p in package_names}


def _joined(parts: Iterable[Mapping[str, Any]]) -> CoverageMap:
    """Return what several test files run."""
    durations: dict[str, float] = {}
    lines: dict[str, dict[str, list[str]]] = {}
    imported: dict[str, set[int]] = {}
    modules: set[str] = set()
    for part in parts:
        durations |= part["durations"]
        modules |= set(part["modules"])
        for file, of_file in part["lines"].items():
            imported.setdefault(file, set()).update(part["imported"].get(file, ()))
            for line, names in of_file.items():
                lines.setdefault(file, {}).setdefault(line, []).extend(names)
    return CoverageMap(durations, lines, imported, sorted(modules))


def _test_files(path: Path) -> Iterable[Path]:
    return path.rglob("test_*.py") if path.is_dir() else [path]


def _modules(tree: Path, package: str) -> Iterable[Path]:
    return (tree / "src/bertwright" / package).rglob("*.py")


def _is_fresh(path: Path, tree: Path) -> bool:
    """Return whether a cached file tells what its tests run in the code as it is now."""
    if not path.exists():
        return False
    digests = json.loads(path.read_text(encoding="utf-8"))["digests"]
    return all((tree / f).exists() and _digest([tree / f]) == d for f, d in digests.items())


def _run_with_coverage(
    tree: Path, packages: Iterable[str], files: Sequence[str], output: Path
) -> Mapping[str, Any]:
    environment = {
        **os.environ,
        "MUTATION_COVERAGE": str(output),
        "MUTATION_SOURCE": ":".join(str(tree / "src/bertwright" / p) for p in packages),
        "PYTHONPATH": f"{tree / 'src'}:{tree}",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-p", "mutation.coverage_plugin", *files]
    process = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"the tests fail without a mutant:\n{process.stdout[-2000:]}")
    data = json.loads(output.read_text(encoding="utf-8"))
    output.unlink()
    return data


def _part_of(measured: Mapping[str, Any], file: str, tree: Path) -> dict[str, Any]:
    """Return what the tests of one file ran, and digests of the modules with these lines."""
    start = f"{file}::"
    lines: dict[str, dict[str, list[str]]] = {}
    for source, of_source in measured["lines"].items():
        for line, every in of_source.items():
            if names := [name for name in every if name.startswith(start)]:
                lines.setdefault(source, {})[line] = names
    durations = {n: s for n, s in measured["durations"].items() if n.startswith(start)}
    digests = {source: _digest([tree / source]) for source in lines}
    imported = {source: measured["imported"][source] for source in lines}
    shared = {"imported": imported, "modules": measured["modules"]}
    return {"durations": durations, "lines": lines, "digests": digests, **shared}


def _digest(files: Iterable[Path], start: str = "") -> str:
    """Return a digest of the content of files."""
    digest = hashlib.sha256(start.encode())
    for file in sorted(files):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
