"""Attention is timed by sequence length, for every mixer."""

from benchmarks import attention


def test_every_mixer_is_timed_at_every_length() -> None:
    rows = attention.compare([16, 32], 64, 1, lambda _: None)
    assert [row["length"] for row in rows] == [16, 32]
    for row in rows:
        assert all(row[name] > 0 for name in attention.MIXER_RECIPES)
        assert row.keys() == attention.COLUMNS.keys()
