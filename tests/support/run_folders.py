"""The folders of pre-training runs: their weights and evaluations."""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from bertwright.training.checkpoints import CheckpointManager
from bertwright.training.reporters.metrics_file import read_metrics


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a model folder."""
    return load_file(folder / "model.safetensors")


def assert_equal(a: Path, b: Path) -> None:
    """Assert that two models have the same weights, bit for bit."""
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


TIMES = {"seconds", "tokens_per_second", "flops_utilisation"}
"""Keys of metrics.jsonl that differ between equal runs."""


def metrics_of(folder: Path) -> list[dict[str, float]]:
    """Return the metrics of a run, without its times."""
    lines = read_metrics(folder / "metrics.jsonl")
    return [{key: line[key] for key in line.keys() - TIMES} for line in lines]


def evaluations_of(folder: Path) -> list[dict[str, float]]:
    """Return the evaluations during a run, without their times."""
    return [line for line in metrics_of(folder) if "loss" not in line]


def stop_at(step: int) -> Callable[[CheckpointManager], None]:
    """Return a replacement of ``prune`` that stops a run after a step, like Ctrl-C."""

    def prune(checkpoints: CheckpointManager) -> None:
        if (checkpoints.folder / f"step-{step:08d}").exists():
            raise KeyboardInterrupt

    return prune


def copy_at(step: int, copy: Path) -> Callable[[CheckpointManager], None]:
    """Return a replacement of ``prune`` that copies a run's folder after a step, as a kill leaves
    it."""

    def prune(checkpoints: CheckpointManager) -> None:
        if (checkpoints.folder / f"step-{step:08d}").exists() and not copy.exists():
            shutil.copytree(checkpoints.folder.parent, copy)

    return prune
