"""Every recipe is timed against the baseline; one that cannot be trained has the reason."""

from pathlib import Path

import pytest

from benchmarks.recipes import compare as recipe_speed
from bertwright.core.errors import UserError


@pytest.mark.full
def test_figures_of_recipes(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_speed, "ROUND_SECONDS", 0.01)
    lines: list[str] = []
    corpora = {"electra": (data_folder, "sample text"), "xlm": (data_folder, "")}
    rows = recipe_speed.compare(
        ["electra", "xlm"], "tiny", corpora.__getitem__, 1, False, lines.append
    )
    electra, xlm = rows
    assert electra["relative_speed"] > 0
    assert electra["relative_flops"] > 0
    assert electra["remark"] == "a generator, sample text"
    assert "the language of its documents" in xlm["remark"]
    assert len(lines) == 2


def test_an_unknown_system_is_named(data_folder: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'bert'"):
        read = lambda system: (data_folder, "")  # noqa: E731
        recipe_speed.compare(["brt"], "tiny", read, 1, False, lambda _: None)
