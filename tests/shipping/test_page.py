"""The table of what came of a goal."""

from bertwright.shipping.page import lines


def test_it_says_what_was_lost_and_gained() -> None:
    base = {"score": 0.9, "bytes": 90_000_000, "milliseconds": 12.0}
    shipped = {"score": 0.89, "bytes": 18_000_000, "milliseconds": 3.0}
    head, _, first, second = lines({"base": base, "shipped": shipped, "plan": "3 layers, 8 bits"})
    assert head == "| what | score | points lost | MB | times smaller | ms | times faster |"
    assert first == "| base | 0.9 | 0 | 90 | 1 | 12 | 1 |"
    assert second == "| 3 layers, 8 bits | 0.89 | 1 | 18 | 5 | 3 | 4 |"


def test_it_says_how_far_what_was_lost_can_be_trusted() -> None:
    base = {"score": 0.9, "bytes": 90_000_000, "milliseconds": 12.0}
    shipped = {"score": 0.89, "bytes": 18_000_000, "milliseconds": 3.0}
    result = {"base": base, "shipped": shipped, "plan": "8 bits"}
    head, _, first, second = lines({**result, "lost_interval": [-0.5, 2.5], "examples": 436})
    assert "| points lost | 95 % interval | examples |" in head
    assert "| 0 |  | 436 |" in first
    assert "| 1 | -0.5, 2.5 | 436 |" in second
