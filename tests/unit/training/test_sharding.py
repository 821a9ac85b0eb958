"""A model sharded over processes is trained as in one process, and its checkpoints fit any number.

The equality is that of sums in another order: the same batches, masks and dropout, clipped by the
same norm, and whole matrices for the optimisers that need them.
"""

import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.saving import TRAINING_FILE, WEIGHTS_FILE, load_model
from bertwright.training.pretraining import pretrain as pretraining
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.process_group import process_group
from bertwright.training.reporters.metrics_file import read_metrics
from forked_processes import together
from run_folders import weights
from toy_recipes import SYSTEMS, marked_systems, published, toy

STEPS = ("steps=4", "checkpoint_every=2", "evaluate_every=2", "compile=false")
CHANGES = (*STEPS, "precision=float32", "text.tokenizer.kind=wordpiece", "micro_batch_tokens=60")

RUNS: dict[str, tuple[str, ...]] = {
    # Muon: several matrices for each process, fused projections, rows that do not divide evenly.
    "gpt-bert": ("ema_decay=0.5", "max_grad_norm=0.1"),
    # LAMB, blocks with the same parameters.
    "albert": (),
    # Adafactor, a decoder.
    "t5": (),
    # A number of block calls that depends on the text.
    "universal-transformer": ("optimiser={kind: adamuon}",),
    # Levels that are frozen at first.
    "bert": ("phases=[{fraction: 0.5, trainable_layers: 1}, {}]", "optimiser.layer_decay=0.7"),
    # Activations that are recomputed in the backward pass.
    "reformer": ("optimiser={kind: stable-adamw}",),
}
"""Systems and changes that need whole tensors, or blocks that cannot be gathered one at a time."""

SEVERAL_PROCESSES = [
    system
    for system in SYSTEMS
    if not any(o.capabilities.compares_sequences for o in published(system).objectives.values())
]
"""Systems whose losses are sums over sequences."""


def train_all(
    runs: Mapping[str, Sequence[str]], data: Path, output: Path, shard: bool, resume: bool = False
) -> None:
    for system, changes in runs.items():
        recipe = toy(system, *CHANGES, *changes)
        pretrain(recipe, data, output / system, shard=shard, resume=resume, quiet=True)


def cut(source: Path, output: Path) -> None:
    """Copy runs without all that they wrote after step 2."""
    for run in source.iterdir():
        names = [TRAINING_FILE, WEIGHTS_FILE, "step-00000004", "metrics.jsonl"]
        shutil.copytree(run, output / run.name, ignore=shutil.ignore_patterns(*names))


def assert_same_run(first: Path, second: Path, tolerance: float = 2e-5) -> None:
    """Assert equal losses, gradient norms and weights, within rounding."""
    a, b = (read_metrics(folder / "metrics.jsonl") for folder in (first, second))
    assert len(a) == len(b) > 0
    for line, other in zip(a, b, strict=True):
        assert line.keys() == other.keys()
        for name, value in line.items():
            if isinstance(value, float) and "second" not in name and name != "mfu":
                value = pytest.approx(value, rel=1e-4, abs=1e-5)
                assert other[name] == value, (name, line["step"])
    one, two = weights(first), weights(second)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.allclose(tensor, two[name], rtol=1e-4, atol=tolerance), name


@pytest.mark.full
@pytest.mark.processor
@pytest.mark.parametrize("systems", [("gpt-bert", "albert"), (*RUNS,)[2:]])
def test_two_processes_equal_one_and_continue_each_other(
    data: Dataset, tmp_path: Path, systems: Sequence[str]
) -> None:
    runs = {system: RUNS[system] for system in systems}
    train_all(runs, data.path, tmp_path / "one", False)
    cut(tmp_path / "one", tmp_path / "one-then-two")
    together(train_and_continue, runs, data.path, tmp_path)
    cut(tmp_path / "two", tmp_path / "two-then-one")
    train_all(runs, data.path, tmp_path / "two-then-one", False, True)
    for system in runs:
        one, two = tmp_path / "one" / system, tmp_path / "two" / system
        assert_same_run(one, two)
        for mixed in ("one-then-two", "two-then-one"):
            for name, tensor in weights(one).items():
                other = weights(tmp_path / mixed / system)[name]
                assert torch.allclose(tensor, other, rtol=1e-4, atol=2e-5), (mixed, system, name)
        for file in (one / "checkpoints" / "step-00000004").glob("*.safetensors"):
            saved, other = (
                load_file(file),
                load_file(two / "checkpoints" / file.parent.name / file.name),
            )
            assert {n: t.shape for n, t in saved.items()} == {n: t.shape for n, t in other.items()}
        load_model(two)


def train_and_continue(runs: Mapping[str, Sequence[str]], data: Path, folder: Path) -> None:
    with one_group():
        train_all(runs, data, folder / "two", True)
        train_all(runs, data, folder / "one-then-two", True, True)


@contextmanager
def one_group() -> Generator[None]:
    """Let all runs use one process group: a second one may connect to what is left of the first."""
    with process_group() as group, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "process_group", lambda: nullcontext(group))
        yield


@pytest.mark.full
@pytest.mark.processor
@pytest.mark.timeout(600)
@pytest.mark.parametrize("system", marked_systems(SEVERAL_PROCESSES))
def test_four_processes_equal_one(rich_data: Dataset, tmp_path: Path, system: str) -> None:
    runs = {system: ()}
    train_all(runs, rich_data.path, tmp_path / "one", False)
    together(train_all, runs, rich_data.path, tmp_path / "four", True, num_processes=4)
    assert_same_run(tmp_path / "one" / system, tmp_path / "four" / system, 1e-4)


def test_one_process_cannot_be_sharded(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--shard splits a model over several processes: start"):
        train_all({"bert": ()}, data.path, tmp_path, True)
    assert not list(tmp_path.iterdir())
