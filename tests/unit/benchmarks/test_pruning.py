"""A pruned model computes what closed gates compute."""

from benchmarks import pruning
from benchmarks.embedding import compare as embedding


def test_pruned_heads_and_units_equal_closed_gates() -> None:
    (result,) = pruning.compare(embedding.checkpoint_folder(), [0.5], [1], 1)
    assert result["difference"] < 1e-5
    assert 0.4 < result["relative_multiplications"] < 0.6
    assert result["milliseconds"] > 0
