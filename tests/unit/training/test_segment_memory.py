"""Segment memory belongs to sequences, however a step is split."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertwright.data.shards.dataset import Dataset
from bertwright.training.pretraining.pretrain import pretrain
from forked_processes import together
from toy_recipes import LENGTH, toy

CHANGES = ("text.tokenizer.kind=wordpiece", "steps=6", "max_grad_norm=null")


@pytest.mark.parametrize("system", ["transformer-xl", "lstm-lm"])
def test_micro_batches_do_not_change_the_memory(system: str, data: Dataset, tmp_path: Path) -> None:
    trained: list[dict[str, torch.Tensor]] = []
    for num_tokens in (8 * LENGTH, 2 * LENGTH):
        recipe = toy(system, *CHANGES, f"micro_batch_tokens={num_tokens}")
        pretrain(recipe, data, tmp_path / str(num_tokens))
        trained.append(load_file(tmp_path / str(num_tokens) / "model.safetensors"))
    whole, split = trained
    for name, weight in whole.items():
        torch.testing.assert_close(split[name], weight, atol=1e-4, rtol=1e-3)


def test_memory_changes_training(data: Dataset, tmp_path: Path) -> None:
    trained: list[torch.Tensor] = []
    for memory in (0, LENGTH):
        recipe = toy("transformer-xl", *CHANGES, f"encoder.memory_length={memory}")
        pretrain(recipe, data, tmp_path / str(memory))
        weights = load_file(tmp_path / str(memory) / "model.safetensors")
        trained.append(weights["encoder.embeddings.tokens.weight"])
    assert not torch.allclose(trained[0], trained[1], atol=1e-5)


@pytest.mark.processor
def test_processes_share_the_memory_of_a_checkpoint(data: Dataset, tmp_path: Path) -> None:
    recipe = toy("transformer-xl", *CHANGES, "checkpoint_every=3")
    pretrain(recipe, data, tmp_path / "one")
    together(pretrain, recipe, data.path, tmp_path / "two")
    # As if the run had been stopped after its first checkpoint.
    shutil.copytree(tmp_path / "two", tmp_path / "split")
    shutil.rmtree(tmp_path / "split" / "checkpoints" / "step-00000006")
    (tmp_path / "split" / "model.safetensors").unlink()
    pretrain(None, data, tmp_path / "split", resume=True)
    one, *others = (load_file(tmp_path / n / "model.safetensors") for n in ("one", "two", "split"))
    for name, weight in one.items():
        for other in others:
            torch.testing.assert_close(other[name], weight, atol=1e-6, rtol=1e-4)
