"""Checkpoints are intact or skipped."""

import resource
import shutil
from pathlib import Path

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.training.checkpoints import CheckpointManager

TENSORS = {"parameters": {"a": torch.arange(4.0), "b": torch.ones(2, 3)}, "optimiser": {}}


def write(checkpoints: CheckpointManager, step: int, score: float | None = None) -> Path:
    return checkpoints.save(step, TENSORS, {"step": step}, score)


def steps(checkpoints: CheckpointManager) -> list[int]:
    return sorted(int(p.name.removeprefix("step-")) for p in checkpoints.folder.iterdir())


def test_a_saved_checkpoint_is_loaded(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    write(checkpoints, 12, score=0.5)
    newest, damaged = checkpoints.load_newest()
    assert newest is not None
    assert (newest.step, newest.state, newest.score, damaged) == (12, {"step": 12}, 0.5, [])
    assert torch.equal(newest.load_tensors("parameters")["b"], torch.ones(2, 3))
    assert newest.load_tensors("optimiser") == {}


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert CheckpointManager(tmp_path / "none").load_newest() == (None, [])


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    for step, score in [(1, 3.0), (2, 1.0), (3, 2.0), (4, 2.5), (5, None)]:
        write(checkpoints, step, score)
    assert steps(checkpoints) == [2, 4, 5]


@pytest.mark.parametrize("file", ["parameters.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_a_truncated_checkpoint_is_skipped(tmp_path: Path, file: str, fraction: float) -> None:
    checkpoints = CheckpointManager(tmp_path)
    write(checkpoints, 1)
    last = write(checkpoints, 2)
    content = (last / file).read_bytes()
    (last / file).write_bytes(content[: int(fraction * len(content))])
    newest, damaged = checkpoints.load_newest()
    assert newest is not None
    assert newest.step == 1
    assert damaged == [last]


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    (write(checkpoints, 3) / "parameters.safetensors").unlink()
    assert checkpoints.load_newest() == (None, [tmp_path / "step-00000003"])


def test_temporary_folders_are_ignored(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    path = write(checkpoints, 1)
    shutil.copytree(path, tmp_path / ".step-00000002-abc")
    newest, damaged = checkpoints.load_newest()
    assert newest is not None
    assert (newest.step, damaged) == (1, [])


def test_a_full_disk_leaves_the_last_checkpoint_intact(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    write(checkpoints, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(UserError, match="free some space"):
            checkpoints.save(2, {"parameters": {"a": torch.zeros(100_000)}}, {}, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert steps(checkpoints) == [1]
    newest, _ = checkpoints.load_newest()
    assert newest is not None
