"""Mutation tests: which code is changed, which tests then run, and what is counted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cosmic_ray.mutating import mutate_code
from scipy.stats import binomtest

from checkout import CHECKOUT
from mutation.coverage_map import CoverageMap
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
    size: int | None = Field(default=1, ge=0)

    def scale(self, x: Any, y: float | None = 2.0) -> Any:
        assert y is not None
        if x > 4:
            raise ValueError(f"{x} is above {LIMIT + 1}")
        return np.where(x, softmax(x), y)
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
    assert {m.function_lines for m in mutants if m.start[0] > 12} == {(13, 17)}
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


def test_samples_are_nested_and_repeatable() -> None:
    mutants = [mutant(line) for line in range(100)]
    order = in_random_order(mutants, 1)
    assert order == in_random_order(reversed(mutants), 1)
    assert sorted(order, key=lambda m: m.start) == mutants
    assert order != in_random_order(mutants, 2)


def test_the_fastest_tests_of_a_line_run_first() -> None:
    durations = {"a.py::slow": 5.0, "a.py::fast": 1.0, "b.py::test": 2.0, "c.py::test": 1.0}
    durations |= {"a.py::other": 0.5}
    lines = {"module.py": {"10": ["a.py::slow", "a.py::fast", "b.py::test"], "20": ["c.py::test"]}}
    tests = CoverageMap(durations, lines, [])
    of_line = ["a.py::fast", "b.py::test", "a.py::slow", "a.py::other"]
    assert tests.tests_of(mutant(10), 100) == of_line
    assert tests.tests_of(mutant(10), 4) == [*of_line[:2], "a.py::other"]
    assert tests.tests_of(mutant(11), 100) == []
    outside = Mutant("small", "module.py", "AddNot", 0, (1, 0), (1, 9), None)
    of_file = ["a.py::fast", "c.py::test", "b.py::test", "a.py::slow"]
    assert tests.tests_of(outside, 100) == [*of_file, "a.py::other"]
    assert tests.tests_of(outside, 5) == [*of_file[:2], "a.py::other"]


@pytest.mark.parametrize(("num_successes", "number"), [(0, 5), (3, 7), (85, 100), (9, 9)])
def test_intervals_are_those_of_wilson(num_successes: int, number: int) -> None:
    expected = binomtest(num_successes, number).proportion_ci(method="wilson")
    assert wilson_interval(num_successes, number) == pytest.approx(expected, abs=1e-4)


def test_mutants_without_a_test_count_as_missed() -> None:
    outcomes = ("killed", "killed", "timeout", "survived", "not covered")
    trials = [Trial(mutant(n), outcome, 1, 1.0) for n, outcome in enumerate(outcomes)]
    of_package, of_all = summary(trials, {"small": 30})
    assert of_package == {**of_all, "package": "small"}
    assert (of_all["detected"], of_all["sampled"], of_all["mutants"]) == ("60.0%", 5, 30)


TRIALS = """
import json, sys
from pathlib import Path
from mutation.mutants import Mutant
from mutation.trials import TrialServer
tree = Path(sys.argv[1])
server = TrialServer(tree, ["bertwright.below.module"], ["below"])
mutants = [("ReplaceBinaryOperator_Add_Sub", 2, 60.0), ("NumberReplacer", 3, 60.0)]
mutants += [("ReplaceBinaryOperator_Sub_Add", 4, 1.0)]
outcomes = [server.run(["test_module.py"])]
for name, line, seconds in mutants:
    mutant = Mutant("small", "src/bertwright/module.py", name, 0, (line, 0), (line, 1), None)
    outcomes.append(server.try_mutant(mutant, ["test_module.py"], seconds).outcome)
server.stop()
print(json.dumps(outcomes))
"""


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
