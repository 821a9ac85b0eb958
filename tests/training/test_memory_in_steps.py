"""Memory between steps belongs to rows of the text, however a step is cut."""

import shutil
from pathlib import Path

import pytest
import torch
from forks import together
from safetensors.torch import load_file

from bertwright.text.shards import Data
from bertwright.training.pretraining import pretrain
from recipes_at_toy_size import LENGTH, toy

CHANGES = ("text.tokenizer.kind=wordpiece", "steps=6", "clip=null")


@pytest.mark.parametrize("system", ["transformer-xl", "lstm-lm"])
def test_micro_batches_remember_their_own_rows(system: str, data: Data, tmp_path: Path) -> None:
    trained: list[dict[str, torch.Tensor]] = []
    for micro in (8 * LENGTH, 2 * LENGTH):
        recipe = toy(system, *CHANGES, f"micro_batch_tokens={micro}")
        pretrain(recipe, data, tmp_path / str(micro))
        trained.append(load_file(tmp_path / str(micro) / "model.safetensors"))
    whole, cut = trained
    for name, weight in whole.items():
        torch.testing.assert_close(cut[name], weight, atol=1e-4, rtol=1e-3)


def test_what_is_remembered_is_trained_with(data: Data, tmp_path: Path) -> None:
    trained: list[torch.Tensor] = []
    for memory in (0, LENGTH):
        recipe = toy("transformer-xl", *CHANGES, f"encoder.memory={memory}")
        pretrain(recipe, data, tmp_path / str(memory))
        weights = load_file(tmp_path / str(memory) / "model.safetensors")
        trained.append(weights["encoder.embeddings.pieces.weight"])
    assert not torch.allclose(trained[0], trained[1], atol=1e-5)


@pytest.mark.processor
def test_processes_remember_their_own_rows_and_one_goes_on_with_all(
    data: Data, tmp_path: Path
) -> None:
    recipe = toy("transformer-xl", *CHANGES, "checkpoint_every=3")
    pretrain(recipe, data, tmp_path / "one")
    together(pretrain, recipe, data.path, tmp_path / "two")
    # As if it had been stopped after its first checkpoint.
    shutil.copytree(tmp_path / "two", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000006")
    (tmp_path / "cut" / "model.safetensors").unlink()
    pretrain(None, data, tmp_path / "cut", resume=True)
    one, *others = (load_file(tmp_path / n / "model.safetensors") for n in ("one", "two", "cut"))
    for name, weight in one.items():
        for other in others:
            torch.testing.assert_close(other[name], weight, atol=1e-6, rtol=1e-4)
