"""The tests of every input that once failed exist; ``python -m tests.cases`` runs them."""

from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parents[1]
AREAS = yaml.safe_load((TESTS / "cases" / "cases.yaml").read_text())
NODE_IDS = {node for entries in AREAS.values() for entry in entries for node in entry["tests"]}


@pytest.mark.parametrize("node_id", sorted(NODE_IDS))
def test_the_tests_of_a_case_exist(node_id: str) -> None:
    file, _, name = node_id.partition("::")
    assert f"def {name or 'test_'}" in (TESTS / file).read_text()
