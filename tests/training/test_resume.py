"""A run that was stopped, at any moment and in any way, ends as one that never was."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from forks import forks
from toy import Toy, finish, weights

from bertwright.errors import UserError
from bertwright.optimisers.adafactor import Adafactor
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.muon import Muon
from bertwright.optimisers.optimiser import Optimiser
from bertwright.training.clock import never
from bertwright.training.loop import train

STEPS = 50
"""With shares of .7 and .3 the phase changes at step 35."""


def killed_after(seconds: float, folder: Path) -> bool:
    """Start to train in a folder and kill it; whether it was still training."""
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
        started = time.monotonic()
        process = forks.Process(target=finish, args=(tmp_path / name, STEPS))
        process.start()
        process.join()
        assert process.exitcode == 0
        duration = time.monotonic() - started
    moments = random.Random(0)
    killed = 0
    while killed < 10:
        # A run that ended before its kill starts over: the kills fall all along the way.
        if (tmp_path / "killed" / "weights.pt").exists():
            assert_equal_weights(tmp_path)
            shutil.rmtree(tmp_path / "killed")
        killed += killed_after(moments.uniform(0, 0.6 * duration), tmp_path / "killed")
    finish(tmp_path / "killed", STEPS)
    assert_equal_weights(tmp_path)


def assert_equal_weights(folder: Path) -> None:
    whole, killed = (torch.load(folder / name / "weights.pt") for name in ("whole", "killed"))
    assert torch.equal(whole, killed)


@pytest.mark.parametrize("optimiser", [AdamW(rate=0.05), Muon(rate=0.05), Adafactor()])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("stop", [6, 14, 16])
def test_a_resumed_run_is_the_run(
    tmp_path: Path, optimiser: Optimiser, precision: str, stop: int
) -> None:
    settings = {"precision": precision, "optimiser": optimiser, "steps": 20}
    whole = Toy(tmp_path / "whole", **settings)
    train(whole.job())

    class Stop(Exception):
        pass

    cut = Toy(tmp_path / "cut", **settings)
    batch = cut.batch

    def until_the_stop(place):
        if place.step == stop:
            raise Stop
        return batch(place)

    with pytest.raises(Stop):
        train(cut.job(batch=until_the_stop))
    again = Toy(tmp_path / "cut", **settings)
    job = again.job()
    start, _ = job.checkpoints.newest()
    assert start.step == stop
    train(job, start)
    assert torch.equal(weights(whole), weights(again))


def test_a_compiled_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = Toy(tmp_path / "whole", steps=12, compiled=True)
    train(whole.job())
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000012")
    again = Toy(tmp_path / "cut", steps=12, compiled=True)
    job = again.job()
    start, _ = job.checkpoints.newest()
    assert start.step == 10
    train(job, start)
    assert torch.equal(weights(whole), weights(again))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    toy = Toy(tmp_path, steps=4)
    train(toy.job())
    start, _ = toy.job().checkpoints.newest()
    other = Toy(tmp_path, optimiser=Muon())
    with pytest.raises(UserError, match="not this model's"):
        train(other.job(), start)


def test_without_checkpoints_nothing_is_written(tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))
    train(Toy(steps=2).job(checkpoint_when=never, folder=tmp_path))
    assert set(os.listdir(tmp_path)) == before
