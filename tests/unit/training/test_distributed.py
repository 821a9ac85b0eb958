"""Several processes train as one."""

from pathlib import Path

import pytest
import torch

from bertwright.training.loop import train
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup
from forked_processes import together
from toy_training import Toy, trained_together, weights


@pytest.mark.processor
def test_two_processes_end_within_rounding_of_one(tmp_path: Path) -> None:
    together(trained_together, tmp_path)
    for precision, tolerance in (("float32", 1e-5), ("bf16", 2e-2)):
        first, second = (torch.load(tmp_path / f"{precision}-{rank}.pt") for rank in range(2))
        assert torch.equal(first, second)
        single = Toy(steps=10, precision=precision)
        train(single.job())
        assert torch.allclose(first, weights(single), atol=tolerance)
        (tmp_path / precision / "checkpoints" / "step-00000010").stat()


def test_parts_of_a_batch_cover_it_once() -> None:
    for world in (1, 2, 3, 5):
        parts = [ProcessGroup(rank, world).local_slice(13) for rank in range(world)]
        assert [index for part in parts for index in range(13)[part]] == list(range(13))


def test_one_process_needs_no_communication() -> None:
    tensor = torch.ones(3)
    assert SINGLE_PROCESS.all_reduce(tensor) is tensor
    assert SINGLE_PROCESS.all_reduce_named({"a": 2.0}) == {"a": 2.0}
    assert SINGLE_PROCESS.broadcast("value") == "value"
