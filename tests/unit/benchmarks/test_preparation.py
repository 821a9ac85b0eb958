"""The preparation benchmark reports every figure."""

from pathlib import Path

import pytest

from benchmarks.preparation import compare as preparation

KEYS = {"tokenizer", "megabytes_per_second", "megabytes_per_second_per_core", "against_datasets"}


@pytest.mark.full
def test_figures_against_the_peer(tmp_path: Path) -> None:
    stories = (f"Story {number}. The keeper counted {number} ships." for number in range(500))
    (tmp_path / "text.txt").write_text("\n\n".join(stories))
    lines: list[str] = []
    rows = preparation.compare([tmp_path], ["wordpiece"], 2, 1, False, lines.append)
    assert rows[0].keys() >= KEYS
    assert all(rows[0][key] > 0 for key in KEYS - {"tokenizer"})
    assert lines
