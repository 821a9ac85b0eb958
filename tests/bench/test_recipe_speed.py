"""Every recipe is timed against the plain one; one that cannot be trained says why."""

from pathlib import Path

import pytest

from bertwright.bench import recipe_speed
from bertwright.errors import UserError


def test_figures_of_recipes(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_speed, "TURN_SECONDS", 0.01)
    said: list[str] = []
    rows = recipe_speed.compare(["electra", "xlm"], "tiny", data_folder, 1, False, said.append)
    electra, xlm = rows
    assert electra["share"] > 0
    assert electra["operations"] > 0
    assert "which language" in xlm["remark"]
    assert len(said) == 2


def test_a_system_that_is_not_there(data_folder: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'bert'"):
        recipe_speed.compare(["brt"], "tiny", data_folder, 1, False, lambda _: None)
