"""A run that was stopped and resumed ends like an uninterrupted one."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.optimisers.adafactor import AdafactorConfig
from bertwright.optimisers.adam import AdamWConfig
from bertwright.optimisers.muon import AdaMuonConfig, MuonConfig
from bertwright.optimisers.optimiser import OptimiserConfig
from bertwright.training.clock import never
from bertwright.training.loop import train
from forked_processes import forks
from toy_training import Toy, finish, weights

STEPS = 50
"""With fractions of 0.7 and 0.3 the phase changes at step 35."""


def killed_after(seconds: float, folder: Path) -> bool:
    """Train in a folder and kill the process; return whether it was still training."""
    process = forks.Process(target=finish, args=(folder, STEPS))
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == -signal.SIGKILL


def test_ten_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    duration = 0.0
    for name in ("first", "whole"):  # the first also starts the server
        start_time = time.monotonic()
        process = forks.Process(target=finish, args=(tmp_path / name, STEPS))
        process.start()
        process.join()
        assert process.exitcode == 0
        duration = time.monotonic() - start_time
    moments = random.Random(0)
    killed = 0
    while killed < 10:
        # A run that ended before its kill starts over, so that kills occur at all steps.
        if (tmp_path / "killed" / "weights.pt").exists():
            assert_equal_weights(tmp_path)
            shutil.rmtree(tmp_path / "killed")
        killed += killed_after(moments.uniform(0, 0.6 * duration), tmp_path / "killed")
    finish(tmp_path / "killed", STEPS)
    assert_equal_weights(tmp_path)


def assert_equal_weights(folder: Path) -> None:
    whole, killed = (torch.load(folder / name / "weights.pt") for name in ("whole", "killed"))
    assert torch.equal(whole, killed)


@pytest.mark.parametrize(
    "optimiser",
    [AdamWConfig(learning_rate=0.05), AdaMuonConfig(learning_rate=0.05), AdafactorConfig()],
)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("stop", [6, 14, 16])
def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, optimiser: OptimiserConfig, precision: str, stop: int
) -> None:
    settings = {"precision": precision, "optimiser": optimiser, "steps": 20}
    whole = Toy(tmp_path / "whole", **settings)
    train(whole.job())

    class Stop(Exception):
        pass

    stopped = Toy(tmp_path / "stopped", **settings)
    batch = stopped.batch

    def batch_until_stop(progress):
        if progress.step == stop:
            raise Stop
        return batch(progress)

    with pytest.raises(Stop):
        train(stopped.job(get_batch=batch_until_stop))
    resumed = Toy(tmp_path / "stopped", **settings)
    job = resumed.job()
    start, _ = job.checkpoints.load_newest()
    assert start.step == stop
    train(job, start)
    assert torch.equal(weights(whole), weights(resumed))


def test_a_compiled_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = Toy(tmp_path / "whole", steps=12, compiled=True)
    train(whole.job())
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "step-00000012")
    resumed = Toy(tmp_path / "stopped", steps=12, compiled=True)
    job = resumed.job()
    start, _ = job.checkpoints.load_newest()
    assert start.step == 10
    train(job, start)
    assert torch.equal(weights(whole), weights(resumed))


def test_a_checkpoint_of_another_model_is_rejected(tmp_path: Path) -> None:
    toy = Toy(tmp_path, steps=4)
    train(toy.job())
    start, _ = toy.job().checkpoints.load_newest()
    other = Toy(tmp_path, optimiser=MuonConfig())
    with pytest.raises(UserError, match="do not match this model"):
        train(other.job(), start)


def test_without_checkpoints_nothing_is_written(tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))
    train(Toy(steps=2).job(checkpoint_trigger=never, dump_folder=tmp_path))
    assert set(os.listdir(tmp_path)) == before
