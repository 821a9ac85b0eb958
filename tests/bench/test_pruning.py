"""What is gone takes no time, and is missed as much as what is behind closed gates."""

from bertwright.bench import embedding, pruning


def test_what_is_left_answers_as_the_whole_with_closed_gates() -> None:
    (found,) = pruning.compare(embedding.checkpoint_folder(), [0.5], [1], 1)
    assert found["difference"] < 1e-5
    assert 0.4 < found["share"] < 0.6
    assert found["milliseconds"] > 0
