"""Mutate the code for some minutes, in random order: ``python -m mutation --minutes 60``.

The packages, operators and tests are in pyproject.toml, section ``tool.mutation``.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from mutation.coverage_map import CoverageMap, measure_coverage
from mutation.mutants import changed_line, find_mutants, in_random_order, read_equivalent
from mutation.report import COLUMNS, summary, survivors
from mutation.trials import Trial, TrialServer, copy_checkout, output_file

CHECKOUT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Return 0 if the target of the sampled mutants is noticed in every package, else 1."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["mutation"]
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="Minutes after the coverage map.")
    parser.add_argument("--count", type=int, help="Number of mutants, if time allows.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed of the sample.")
    parser.add_argument("--only", action="append", help="Only a package, or a file of it.")
    parser.add_argument("--json", action="store_true", help="Print one line of JSON.")
    parser.add_argument("--document", type=Path, help="Markdown file to write the table into.")
    options = parser.parse_args()
    trials, num_mutants, sources = run(options, settings)
    lines = summary(trials, num_mutants)
    changes = {t: changed_line(t.mutant, sources[t.mutant.path]) for t in trials}
    undetected = survivors(trials, changes)
    if options.json:
        print(json.dumps({"summary": lines, "survivors": undetected}))
    else:
        print("\n".join(undetected), *lines, sep="\n")
    if options.document is not None:
        write_document(options.document, options.seed, lines, undetected)
    target = settings["target"]
    return 0 if all(n["killed"] + n["timeout"] >= target * n["sampled"] for n in lines) else 1


def run(
    options: argparse.Namespace, settings: dict[str, Any]
) -> tuple[list[Trial], dict[str, int], dict[str, str]]:
    """Return the trials of a random sample of mutants, the number of all, and their sources.

    The checkout may change during the trials.
    """
    only = options.only or settings["packages"]
    equivalent, mutants, num_mutants = read_equivalent(), [], {}
    for package in settings["packages"]:
        files = [name for name in only if name.startswith(f"src/bertwright/{package}/")]
        if package not in only and not files:
            continue
        excludes = package in settings["excluded_defaults"]
        mutants_of_package = find_mutants(
            CHECKOUT, package, settings["operators"], equivalent, excludes
        )
        mutants_of_package = [m for m in mutants_of_package if package in only or m.path in files]
        mutants += mutants_of_package
        num_mutants[package] = len(mutants_of_package)
    sources = {m.path: (CHECKOUT / m.path).read_text(encoding="utf-8") for m in mutants}
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder) / "checkout"
        copy_checkout(CHECKOUT, tree)
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mutation"
        maps = measure_coverage(tree, settings["tests"], num_mutants, cache)
        servers = {package: start_server(tree, package, maps[package]) for package in maps}
        deadline = time.monotonic() + 60 * options.minutes
        try:
            for mutant in in_random_order(mutants, options.seed)[: options.count]:
                if time.monotonic() > deadline:
                    break
                coverage_map = maps[mutant.package]
                tests = coverage_map.tests_of(mutant, settings["max_seconds"])
                seconds = 20 + 5 * sum(coverage_map.durations[test] for test in tests)
                trials.append(servers[mutant.package].try_mutant(mutant, tests, round(seconds)))
                print(_progress(trials[-1], len(trials)), file=sys.stderr, flush=True)
        finally:
            for server in servers.values():
                server.stop()
    return trials, num_mutants, sources


def start_server(tree: Path, package: str, coverage_map: CoverageMap) -> TrialServer:
    """Start the process for a package's mutants; exit if its fastest tests fail in it."""
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [name.removeprefix("bertwright.") for name in contracts["contracts"][0]["layers"]]
    below = layers[layers.index(package) + 1 :]
    server = TrialServer(tree, coverage_map.modules, below)
    durations = coverage_map.durations
    if not server.run(sorted(durations, key=lambda test: durations[test])[:50]):
        server.stop()
        output = output_file(tree).read_text(encoding="utf-8", errors="replace")
        sys.exit(f"tests of {package} fail without a mutant:\n{output[-3000:]}")
    return server


def _progress(trial: Trial, number: int) -> str:
    mutant = trial.mutant
    return (
        f"{number} {trial.outcome} {mutant.path}:{mutant.start[0]} {mutant.operator} "
        f"#{mutant.occurrence}, {trial.num_tests} tests, {trial.seconds:.0f} s"
    )


EXPLANATION = """\
Random samples (seed {seed}) of small changes of each package, one at a time: another number,
comparison, sign or truth value, exchanged arguments, no softmax. The tests that run a changed line
are run until one fails. Annotations, messages, limits of settings, names of random numbers, lengths
of digests and drawing are not changed, nor, in analysis and compression, the default numbers of
settings, nor the changes that cannot make a difference (`mutation/equivalent.yaml`). Below the
table are all changes that no test noticed."""


def write_document(path: Path, seed: int, lines: list[Any], undetected: list[str]) -> None:
    """Write the table and the mutants that were not noticed."""
    from benchmarks.markdown_sections import write_section
    from bertwright.runtime.markdown_report import markdown_table

    listed = [f"- {line}" for line in undetected] or ["All were noticed."]
    explanation = EXPLANATION.format(seed=seed).splitlines()
    table = markdown_table(COLUMNS, lines)
    write_section(path, "mutation", [*explanation, "", *table, "", *listed])


if __name__ == "__main__":
    sys.exit(main())
