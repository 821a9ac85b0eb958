"""What is shared by the tests of this room."""

from collections.abc import Iterator

import pytest

from bertwright.studies.corpora import story_tasks, village


@pytest.fixture(scope="module", autouse=True)
def few_examples() -> Iterator[None]:
    """A text of a hundred documents is written in a moment, its tasks are not."""
    with pytest.MonkeyPatch.context() as patch:
        for tasks in (story_tasks, village):
            patch.setattr(tasks, "TRAINING", 400)
            patch.setattr(tasks, "DEVELOPMENT", 100)
        yield
