"""Attention is timed by length, for every mixer that takes part."""

from bertwright.bench import attention


def test_every_contestant_is_timed_at_every_length() -> None:
    rows = attention.compare([16, 32], 64, 1, lambda _: None)
    assert [row["length"] for row in rows] == [16, 32]
    for row in rows:
        assert all(row[name] > 0 for name in attention.CONTESTANTS)
        assert row.keys() == attention.COLUMNS.keys()
