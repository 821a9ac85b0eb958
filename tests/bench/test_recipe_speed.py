"""Every recipe is timed against the plain one; one that cannot be trained says why."""

from pathlib import Path

import pytest

from bertwright.bench import recipe_speed
from bertwright.errors import UserError


def test_figures_of_recipes(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_speed, "TURN_SECONDS", 0.01)
    said: list[str] = []
    text = {"electra": (data_folder, "read words"), "xlm": (data_folder, "")}
    rows = recipe_speed.compare(["electra", "xlm"], "tiny", text.__getitem__, 1, False, said.append)
    electra, xlm = rows
    assert electra["share"] > 0
    assert electra["operations"] > 0
    assert electra["remark"] == "a generator, read words"
    assert "which language" in xlm["remark"]
    assert len(said) == 2


def test_a_system_that_is_not_there(data_folder: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'bert'"):
        read = lambda system: (data_folder, "")  # noqa: E731
        recipe_speed.compare(["brt"], "tiny", read, 1, False, lambda _: None)
