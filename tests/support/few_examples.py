"""A fixture that shortens the synthetic tasks."""

from collections.abc import Iterator

import pytest

from bertwright.studies.corpora import story_tasks
from experiments.compressions import village


@pytest.fixture(scope="module", autouse=True)
def few_examples() -> Iterator[None]:
    """Write few examples of the tasks."""
    with pytest.MonkeyPatch.context() as patch:
        for tasks in (story_tasks, village):
            patch.setattr(tasks, "TRAINING", 400)
            patch.setattr(tasks, "DEVELOPMENT", 100)
        yield
