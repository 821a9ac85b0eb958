"""Every row of compression in short: its methods come to their end, and its exact checks hold."""

from collections.abc import Iterator

import pytest

from bertwright.studies.compression_checks.checking import check
from bertwright.studies.compression_checks.ground import Ground, made
from bertwright.studies.compression_checks.rows import all_rows
from short_runs import shorten


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield made(tmp_path_factory.mktemp("ground"), quick=True)


@pytest.mark.parametrize("number", [row.number for row in all_rows()])
def test_a_row_holds(ground: Ground, number: str) -> None:
    found = check(ground, number)
    assert found.ok, found.wrong
    assert found.checks or found.figures
