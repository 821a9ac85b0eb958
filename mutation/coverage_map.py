"""Which tests run a line of code."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.mutants import Mutant


@dataclass(frozen=True)
class CoverageMap:
    """What the tests of a package run.

    Attributes:
        durations: seconds by test.
        lines: the tests of every line of every file.
        modules: all modules that were imported.
    """

    durations: Mapping[str, float]
    lines: Mapping[str, Mapping[str, Sequence[str]]]
    modules: Sequence[str]

    def tests_of(self, mutant: Mutant, max_seconds: float) -> list[str]:
        """Return the tests that can notice a mutant, the fastest first, for ``max_seconds``.

        First come the tests that run its lines, then the others of the same test files, because
        fixtures that several tests share are counted for the first of them. Code outside of
        functions runs when it is imported, and any test may read what it defines: for half of the
        time, tests that run the file come first, then all others.
        """
        lines = self.lines.get(mutant.path, {})
        if mutant.function_lines is None:
            covering = {test for tests in lines.values() for test in tests}
            others = self.durations.keys() - covering
            limits = max_seconds / 2, max_seconds
        else:
            within = range(mutant.start[0], mutant.stop[0] + 1)
            covering = {test for line in within for test in lines.get(str(line), ())}
            files = {test.partition("::")[0] for test in covering}
            others = {t for t in self.durations if t.partition("::")[0] in files} - covering
            limits = max_seconds, max_seconds
        selected, total = list[str](), 0.0
        for tests, limit in zip((covering, others), limits, strict=True):
            for test in sorted(tests, key=lambda t: (self.durations[t], t)):
                if total + self.durations[test] > limit and selected:
                    break
                total += self.durations[test]
                selected.append(test)
        return selected


def measure_coverage(tree: Path, package: str, tests: Iterable[str], cache: Path) -> CoverageMap:
    """Return what the tests of a package run.

    Each test file is run once, and again when it or the code has changed.

    Raises SystemExit if a test fails without a mutant.
    """
    cache.mkdir(parents=True, exist_ok=True)
    files = sorted({str(f.relative_to(tree)) for test in tests for f in _test_files(tree / test)})
    code = _digest([*(tree / "src").rglob("*.py"), *(tree / "tests/support").rglob("*.py")])
    cached = {f: cache / f"{package}-{_digest([tree / f], code)}.json" for f in files}
    stale = [file for file, path in cached.items() if not path.exists()]
    if stale:
        print(f"running {len(stale)} test files of {package} once ...", file=sys.stderr, flush=True)
        measured = _run_with_coverage(tree, package, stale, cache / f"{package}.part")
        for file in stale:
            part = cached[file].with_suffix(".part")
            part.write_text(json.dumps(_part_of(measured, file)), encoding="utf-8")
            part.rename(cached[file])
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in cached.values()]
    lines: dict[str, dict[str, list[str]]] = {}
    for part in parts:
        for file, of_file in part["lines"].items():
            for line, names in of_file.items():
                lines.setdefault(file, {}).setdefault(line, []).extend(names)
    durations = {name: seconds for part in parts for name, seconds in part["durations"].items()}
    return CoverageMap(durations, lines, sorted({m for part in parts for m in part["modules"]}))


def _test_files(path: Path) -> Iterable[Path]:
    return path.rglob("test_*.py") if path.is_dir() else [path]


def _run_with_coverage(
    tree: Path, package: str, files: Sequence[str], output: Path
) -> Mapping[str, Any]:
    environment = {
        **os.environ,
        "MUTATION_COVERAGE": str(output),
        "MUTATION_SOURCE": str(tree / "src/bertwright" / package),
        "PYTHONPATH": f"{tree / 'src'}:{tree}",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-p", "mutation.coverage_plugin", *files]
    process = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"the tests of {package} fail without a mutant:\n{process.stdout[-2000:]}")
    data = json.loads(output.read_text(encoding="utf-8"))
    output.unlink()
    return data


def _part_of(measured: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return what the tests of one file ran."""
    start = f"{file}::"
    lines = {
        source: {
            line: names
            for line, every in of_source.items()
            if (names := [name for name in every if name.startswith(start)])
        }
        for source, of_source in measured["lines"].items()
    }
    durations = {n: s for n, s in measured["durations"].items() if n.startswith(start)}
    return {"durations": durations, "lines": lines, "modules": measured["modules"]}


def _digest(files: Iterable[Path], start: str = "") -> str:
    """Return a digest of the content of files."""
    digest = hashlib.sha256(start.encode())
    for file in sorted(files):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
