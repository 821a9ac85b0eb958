"""The page of the lectures has a line for everything, and is what its command writes."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from bertwright.analysis.core.analysis import Analysis
from bertwright.analysis.core.runner import ANALYSIS_GROUPS
from bertwright.cli.app import PANELS
from bertwright.compression.distillation.recipe import RECIPES_PACKAGE
from bertwright.compression.method import METHODS_PACKAGE, resource_names
from bertwright.objectives import Objective
from bertwright.recipes.loading import system_names
from bertwright.studies.study import list_studies
from checkout import DOCUMENTS
from experiments.compressions.checks import all_checks
from experiments.lectures.lines import all_lines
from experiments.lectures.page import COMMAND, write_lectures


def _of_the_package(kinds: Mapping[str, type]) -> set[str]:
    """Return the kinds that are not from plugins of other tests."""
    assert ANALYSIS_GROUPS, "the analyses are imported"
    return {name for name, kind in kinds.items() if kind.__module__.startswith("bertwright.")}


KNOWN: dict[str, Callable[[], Collection[str]]] = {
    "recipe": system_names,
    "objective": lambda: _of_the_package(Objective.kinds()),
    "study": list_studies,
    "analysis": lambda: _of_the_package(Analysis.kinds()),
    "check": lambda: [check.number for check in all_checks()],
    "method": lambda: resource_names(METHODS_PACKAGE),
    "distillation": lambda: resource_names(RECIPES_PACKAGE),
}

NUMBERS = {"A": 37, "B": 50, "C": 21}
"""The last number of each part of the survey."""

VERBS_WITHOUT_LINE = {"analyses", "doctor", "get", "quickstart", "recipes", "sample"}
"""Verbs that list, check, download or demonstrate."""

REMEDY = "add lines to experiments/lectures/*.yaml"


@pytest.mark.parametrize("kind", KNOWN)
def test_everything_has_a_line(kind: str) -> None:
    names = {name for line in all_lines() for other, name in line.items() if other == kind}
    assert set(KNOWN[kind]()) - names == set(), REMEDY


def test_every_number_of_the_survey_has_a_line() -> None:
    numbers = {f"{part}{n}" for part, last in NUMBERS.items() for n in range(1, last + 1)}
    assert numbers - {number for line in all_lines() for number in line.id.split()} == set()


def test_every_verb_has_a_line() -> None:
    commands = [command for line in all_lines() for command in line.command]
    verbs = {command.split()[1] for command in commands}
    names = {name for panel in PANELS.values() for name in panel}
    assert names - verbs == VERBS_WITHOUT_LINE, REMEDY
    modes = {command.split()[2] for command in commands if command.split()[1] == "compress"}
    assert modes == {"distil", "fit", "prune-layers"}, REMEDY


def test_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    stored, page = DOCUMENTS / "concepts" / "lectures.md", tmp_path / "lectures.md"
    page.write_bytes(stored.read_bytes())
    write_lectures(DOCUMENTS / "results", page)
    assert page.read_text() == stored.read_text(), f"run: {COMMAND}"
    tables = page.read_text().splitlines()
    cells = [line.replace(r"\|", "").count(" | ") for line in tables if line.startswith("| ")]
    assert len(cells) > len(all_lines())
    assert set(cells) == {5}, "a text with a bar breaks its table"
    assert not re.search(r"\| +\|[^|]*\|\n", page.read_text()), "a line without where it is"
