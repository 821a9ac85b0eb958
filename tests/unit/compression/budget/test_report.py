"""The table of a compression to a goal."""

from bertwright.compression.budget.run import report_table

BASE = {"score": 0.9, "bytes": 90_000_000, "milliseconds": 12.0}
COMPRESSED = {"score": 0.89, "bytes": 18_000_000, "milliseconds": 3.0}


def test_table_compares_both_models() -> None:
    result = {"base": BASE, "compressed": COMPRESSED, "plan": "3 layers, 8 bits"}
    head, _, first, second = report_table(result)
    assert head == "| model | score | points lost | MB | times smaller | ms | times faster |"
    assert first == "| base | 0.9 | 0 | 90 | 1 | 12 | 1 |"
    assert second == "| 3 layers, 8 bits | 0.89 | 1 | 18 | 5 | 3 | 4 |"


def test_table_shows_the_interval_of_the_loss() -> None:
    result = {"base": BASE, "compressed": COMPRESSED, "plan": "8 bits", "examples": 436}
    head, _, first, second = report_table({**result, "lost_points_interval": [-0.5, 2.5]})
    assert "| points lost | 95 % interval | examples |" in head
    assert "| 0 |  | 436 |" in first
    assert "| 1 | -0.5, 2.5 | 436 |" in second
