"""N processes equal one."""

from pathlib import Path

import pytest
import torch
from forks import together
from toy import Toy, trained_together, weights

from bertwright.training.distributed import ALONE, Processes
from bertwright.training.loop import train


@pytest.mark.processor
def test_two_processes_end_within_rounding_of_one(tmp_path: Path) -> None:
    together(trained_together, tmp_path)
    for precision, tolerance in (("float32", 1e-5), ("bf16", 2e-2)):
        first, second = (torch.load(tmp_path / f"{precision}-{rank}.pt") for rank in range(2))
        assert torch.equal(first, second)
        alone = Toy(steps=10, precision=precision)
        train(alone.job())
        assert torch.allclose(first, weights(alone), atol=tolerance)
        (tmp_path / precision / "checkpoints" / "step-00000010").stat()


def test_parts_of_a_batch_cover_it_once() -> None:
    for world in (1, 2, 3, 5):
        parts = [Processes(rank, world).part_of(13) for rank in range(world)]
        rows = [row for part in parts for row in range(13)[part]]
        assert rows == list(range(13))


def test_one_process_has_nothing_to_wait_for() -> None:
    tensor = torch.ones(3)
    assert ALONE.sum(tensor) is tensor
    assert ALONE.sum_named({"a": 2.0}) == {"a": 2.0}
    assert ALONE.share("said") == "said"
