"""The training step of Transformers as a contestant: as a user runs it, and at its best.

As a user runs it: ``BertForMaskedLM`` in float32, eager, with PyTorch's AdamW and the allocator as
it comes. At its best: compiled, fused AdamW, our allocator settings, and bfloat16 by autocast where
it is native.
"""

import json
import sys
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from bertwright.bench.turns import Turns
from bertwright.bench.workload import VOCABULARY_SIZE, Workload
from bertwright.encoder.mixers.attention import AttentionChoice
from bertwright.examples.batches import Batch
from bertwright.extras import require
from bertwright.machine.process import tune_process
from bertwright.machine.speed import multiplies_bfloat16
from bertwright.recipes import Recipe

IGNORED = -100
"""The label of places that are not asked, as Transformers has it."""


def stock_model(recipe: Recipe, vocabulary_size: int, **changes: Any) -> torch.nn.Module:
    """The stock ``BertForMaskedLM`` of the same layers, width, heads and feed-forward parameters.

    ``changes`` are settings of its ``BertConfig``. Errors: MissingExtra.
    """
    require("transformers", "huggingface")
    from transformers import BertConfig, BertForMaskedLM

    encoder = recipe.encoder
    assert isinstance(encoder.mixer, AttentionChoice)
    settings: dict[str, Any] = {
        "vocab_size": vocabulary_size,
        "hidden_size": encoder.width,
        "num_hidden_layers": "".join(encoder.depth.orders()).count("s"),
        "num_attention_heads": encoder.mixer.shape(encoder.width).heads,
        "intermediate_size": 4 * encoder.width,
        "max_position_embeddings": max(512, recipe.assembly.length),
        **changes,
    }
    return BertForMaskedLM(BertConfig(**settings))


def train(workload: Workload, turns: Turns, device: str, best: bool) -> None:
    """Make steps at the pace of the turns, without end."""
    torch.manual_seed(0)
    model: Any = stock_model(workload.recipe(), VOCABULARY_SIZE).to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=best)
    compiled: Any = torch.compile(model) if best else model
    in_bfloat16 = best and multiplies_bfloat16(device)
    inputs = [_tensors(batch, device) for batch in workload.batches()]
    for pieces, labels in cycle(inputs):
        turns.before_step()
        with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
            loss = compiled(input_ids=pieces, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()


def _tensors(batch: Batch, device: str) -> tuple[Tensor, Tensor]:
    pieces = torch.from_numpy(batch.pieces).long()
    question = batch.questions["masked"]
    labels = torch.full_like(pieces, IGNORED)
    labels.view(-1)[torch.from_numpy(question.where)] = torch.from_numpy(question.target)
    return pieces.to(device), labels.to(device)


def main() -> None:
    """Be a contestant: ``python -m bertwright.bench.peers '{"device": ..., "best": ..., ...}'``."""
    settings = json.loads(sys.argv[1])
    if settings["best"]:
        tune_process()
    turns = Turns.over_standard_streams(settings["device"])
    train(Workload(**settings["workload"]), turns, settings["device"], settings["best"])


if __name__ == "__main__":
    main()
