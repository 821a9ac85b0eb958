"""Mutation tests: which code is changed, which tests then run, and what is counted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cosmic_ray.mutating import mutate_code
from scipy.stats import binomtest

from checkout import CHECKOUT
from mutation.coverage_map import CoverageMap, measure_coverage
from mutation.mutants import (
    OUR_OPERATORS,
    Mutant,
    changed_line,
    find_mutants,
    in_random_order,
    read_equivalent,
)
from mutation.report import summary, wilson_interval
from mutation.trials import Trial

SOURCE = '''\
"""A module."""

from typing import Any

Sums = tuple[int, int] | None
LIMIT = 3


class Range(Settings):
    plots = (Curve(size + 1, 3),)
    size: int | None = Field(default=1, ge=0)

    def scale(self, x: Any, y: float | None = 2.0) -> Any:
        assert y is not None
        if x > 4:
            raise ValueError(f"{x} is above {LIMIT + 1}")
        return np.where(x, softmax(x), y)
        name = sha256(x).hexdigest()[:16]
        return rng.fold_in("part", 3)
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one module and its tests."""
    package = tmp_path / "src/bertwright/small"
    package.mkdir(parents=True)
    (package / "module.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize("name", OUR_OPERATORS)
def test_operators_change_what_their_examples_say(name: str) -> None:
    operator = OUR_OPERATORS[name]()
    assert operator.examples()
    for example in operator.examples():
        code = mutate_code(example.pre_mutation_code, operator, 0)
        assert code == example.post_mutation_code


@pytest.mark.parametrize(
    "code",
    [
        "np.maximum(a, b)",
        "max(a, 1)",
        "x.transpose(1, 2)",
        "f(a, key=b)",
        "f(a, a)",
        "len(x)",
        "softmax",
        "isinstance(a, B)",
        "f(*a)",
    ],
)
def test_operators_leave_other_code_alone(code: str) -> None:
    for operator in OUR_OPERATORS.values():
        assert mutate_code(code, operator(), 0) is None


def test_annotations_messages_and_limits_are_not_mutated(checkout: Path) -> None:
    operators = ["NumberReplacer", "ReplaceComparisonOperator_Gt_GtE", "RemoveTransformation"]
    operators += ["SwapArguments", "ReplaceComparisonOperator_IsNot_Is", "AddNot"]
    operators += ["ReplaceBinaryOperator_BitOr_BitAnd"]
    mutants = find_mutants(checkout, "small", operators, [])
    changes = {changed_line(mutant, SOURCE) for mutant in mutants}
    assert {after for _, after in changes} == {
        "LIMIT = 4",
        "LIMIT = 2",
        "size: int | None = Field(default= 2, ge=0)",
        "size: int | None = Field(default= 0, ge=0)",
        "def scale(self, x: Any, y: float | None = 3.0) -> Any:",
        "def scale(self, x: Any, y: float | None = 1.0) -> Any:",
        "if x >= 4:",
        "if not x > 4:",
        "if x > 5:",
        "if x > 3:",
        "return np.where(x, (x), y)",
        "return np.where(x, y, softmax(x))",
    }
    assert {m.function_lines for m in mutants if m.start[0] > 13} == {(14, 19)}
    without = find_mutants(checkout, "small", operators, [], excludes_defaults=True)
    assert changes - {changed_line(m, SOURCE) for m in without} == {
        (
            "size: int | None = Field(default=1, ge=0)",
            f"size: int | None = Field(default= {n}, ge=0)",
        )
        for n in (0, 2)
    }
    before, after = next(change for change in changes if change[1] == "if x >= 4:")
    known = {"file": "src/bertwright/small/module.py", "from": before, "to": after}
    assert len(find_mutants(checkout, "small", operators, [known])) == len(mutants) - 1


def test_known_equivalent_mutants_exist_and_have_a_reason() -> None:
    for entry in read_equivalent():
        assert entry["reason"]
        lines = (CHECKOUT / entry["file"]).read_text(encoding="utf-8").splitlines()
        assert entry["from"] in {line.strip() for line in lines}, entry


def mutant(line: int = 10, package: str = "small") -> Mutant:
    return Mutant(package, "module.py", "AddNot", line, (line, 0), (line, 9), (8, 12))


def test_samples_are_nested_and_repeatable_with_equal_parts_of_every_package() -> None:
    small = [mutant(line) for line in range(20)]
    large = [mutant(line, "large") for line in range(100)]
    order = in_random_order(small + large, 1)
    assert order == in_random_order(reversed(large + small), 1)
    assert sorted(order, key=lambda m: (m.package, m.start)) == large + small
    assert order != in_random_order(small + large, 2)
    assert sorted(m.package for m in order[:40]) == ["large"] * 20 + ["small"] * 20


def test_the_fastest_tests_of_a_line_run_first() -> None:
    durations = {"a.py::slow": 5.0, "a.py::fast": 1.0, "b.py::test": 2.0, "c.py::test": 1.0}
    durations |= {"a.py::other": 0.5}
    lines = {"module.py": {"10": ["a.py::slow", "a.py::fast", "b.py::test"], "20": ["c.py::test"]}}
    tests = CoverageMap(durations, lines, {"module.py": {1, 10, 12}}, [])
    of_line = ["a.py::fast", "b.py::test", "a.py::slow"]
    assert tests.tests_of(mutant(10), 100) == of_line
    assert tests.tests_of(mutant(10), 4) == of_line[:2]
    assert tests.tests_of(mutant(11), 100) == []
    outside = Mutant("small", "module.py", "AddNot", 0, (1, 0), (1, 9), None)
    of_file = ["a.py::fast", "c.py::test", "b.py::test", "a.py::slow"]
    assert tests.tests_of(outside, 100) == [*of_file, "a.py::other"]
    assert tests.tests_of(outside, 5) == [*of_file[:2], "a.py::other"]
    # A function that runs when the module is imported.
    assert tests.tests_of(mutant(12), 100) == [*of_file, "a.py::other"]


@pytest.mark.parametrize(("num_successes", "number"), [(0, 5), (3, 7), (85, 100), (9, 9)])
def test_intervals_are_those_of_wilson(num_successes: int, number: int) -> None:
    expected = binomtest(num_successes, number).proportion_ci(method="wilson")
    assert wilson_interval(num_successes, number) == pytest.approx(expected, abs=1e-4)


def test_mutants_without_a_test_count_as_missed() -> None:
    outcomes = ("killed", "killed", "timeout", "survived", "not covered")
    trials = [Trial(mutant(n), outcome, 1, 1.0) for n, outcome in enumerate(outcomes)]
    of_small, of_other = summary(trials, {"small": 30, "other": 9})
    assert (of_small["detected"], of_small["sampled"], of_small["mutants"]) == ("60.0%", 5, 30)
    assert (of_other["sampled"], of_other["interval"]) == (0, "0.0% to 100.0%")


def test_a_test_file_runs_again_when_it_or_the_code_that_it_runs_has_changed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (checkout / f"test_{name}.py").write_text("")
    code = "src/bertwright/small/module.py"
    runs: list[list[str]] = []

    def run(tree: Path, packages: object, files: list[str], output: Path) -> dict[str, object]:
        runs.append(files)
        lines = {code: {"15": ["test_a.py::test"]}, "other.py": {"1": []}}
        durations = {f"{file}::test": 2.0 for file in files}
        imported = {code: [1], "other.py": [1]}
        shared = {"imported": imported, "modules": ["json"]}
        return {"durations": durations, "lines": lines, **shared}

    monkeypatch.setattr("mutation.coverage_map._run_with_coverage", run)

    def measure() -> list[list[str]]:
        runs.clear()
        tests = {"small": ["test_a.py", "test_b.py"], "other": ["test_b.py"]}
        maps = measure_coverage(checkout, tests, ["small"], checkout / "cache")
        assert maps["small"].durations == {"test_a.py::test": 2.0, "test_b.py::test": 2.0}
        assert maps["small"].lines == {code: {"15": ["test_a.py::test"]}}
        return list(runs)

    assert measure() == [["test_a.py", "test_b.py"]]
    assert measure() == []
    (checkout / code).write_text(SOURCE.replace("4", "5"))
    assert measure() == [["test_a.py"]]
    (checkout / "test_b.py").write_text("# changed")
    assert measure() == [["test_b.py"]]
    (checkout / "src/bertwright/small/added.py").write_text("")
    assert measure() == [["test_a.py", "test_b.py"]]
    (checkout / "src/bertwright/large").mkdir()
    (checkout / "src/bertwright/large/module.py").write_text("")
    assert measure() == []


TRIALS = """
import json, sys
from pathlib import Path
from mutation.mutants import Mutant
from mutation.trials import TrialServer
tree = Path(sys.argv[1])
server = TrialServer(tree, ["bertwright.below.module"], ["below"])
mutants = [("ReplaceBinaryOperator_Add_Sub", 2, 60), ("NumberReplacer", 3, 60)]
mutants += [("ReplaceBinaryOperator_Sub_Add", 4, 2)]
outcomes = [server.run(["test_module.py"])]
for name, line, seconds in mutants:
    mutant = Mutant("small", "src/bertwright/module.py", name, 0, (line, 0), (line, 1), None)
    outcomes.append(server.try_mutant(mutant, ["test_module.py"], seconds).outcome)
server.stop()
print(json.dumps(outcomes))
"""


@pytest.mark.full
@pytest.mark.linux
def test_trials_tell_what_the_tests_notice(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    package = tree / "src/bertwright"
    (package / "below").mkdir(parents=True)
    for folder in (package, package / "below"):
        (folder / "__init__.py").write_text("")
    (package / "below/module.py").write_text("")
    source = "def total(n):\n    s = n + n\n    while n < -1:\n        n = n - n\n    return s\n"
    (package / "module.py").write_text(source)
    (tree / "test_module.py").write_text(
        "from bertwright.module import total\n\n"
        "def test_total():\n    assert total(2) == 4\n    assert total(-2) == -4\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", TRIALS, str(tree)], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert json.loads(process.stdout) == [True, "killed", "survived", "timeout"], process.stderr
    assert (package / "module.py").read_text() == source
