"""Worker process that trains with Transformers: by default, and at its fastest.

By default: ``BertForMaskedLM`` in float32, eager, with PyTorch's AdamW and the default allocator.
At its fastest: compiled, with fused AdamW, our allocator settings and, where it is native, bfloat16
autocast.
"""

import json
import sys
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from benchmarks.pretraining.workload import VOCAB_SIZE, Workload
from bertwright.batches.batch import Batch
from bertwright.core.optional_dependencies import require_library
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.recipes import Recipe
from bertwright.runtime.matmul_throughput import supports_bfloat16
from bertwright.runtime.process import configure_process
from bertwright.timing.interleaved import StepTimer

IGNORE_INDEX = -100
"""Label of positions without a target, as in Transformers."""


def stock_model(recipe: Recipe, vocab_size: int, **overrides: Any) -> torch.nn.Module:
    """Return the stock ``BertForMaskedLM`` with the layers, width and heads of a recipe.

    ``overrides`` are settings of its ``BertConfig``. Errors: MissingExtra.
    """
    require_library("transformers", "huggingface")
    from transformers import BertConfig, BertForMaskedLM

    encoder = recipe.encoder
    assert isinstance(encoder.mixer, AttentionConfig)
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": encoder.width,
        "num_hidden_layers": "".join(encoder.depth.sublayer_orders()).count("s"),
        "num_attention_heads": encoder.mixer.head_shape(encoder.width).num_heads,
        "intermediate_size": 4 * encoder.width,
        "max_position_embeddings": max(512, recipe.assembly.length),
        **overrides,
    }
    return BertForMaskedLM(BertConfig(**settings))


def train(workload: Workload, timer: StepTimer, device: str, is_optimised: bool) -> None:
    """Run steps until the process is stopped."""
    torch.manual_seed(0)
    model: Any = stock_model(workload.recipe(), VOCAB_SIZE).to(device).train()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, fused=is_optimised
    )
    compiled: Any = torch.compile(model) if is_optimised else model
    in_bfloat16 = is_optimised and supports_bfloat16(device)
    inputs = [_to_tensors(batch, device) for batch in workload.batches()]
    for token_ids, labels in cycle(inputs):
        timer.before_step()
        with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
            loss = compiled(input_ids=token_ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()


def _to_tensors(batch: Batch, device: str) -> tuple[Tensor, Tensor]:
    token_ids = torch.from_numpy(batch.token_ids).long()
    targets = batch.targets["masked"]
    labels = torch.full_like(token_ids, IGNORE_INDEX)
    labels.view(-1)[torch.from_numpy(targets.positions)] = torch.from_numpy(targets.labels)
    return token_ids.to(device), labels.to(device)


def main() -> None:
    """Run a worker: ``python -m benchmarks.pretraining.transformers_worker '{"best": ...}'``."""
    settings = json.loads(sys.argv[1])
    if settings["best"]:
        configure_process()
    timer = StepTimer.from_standard_streams(settings["device"])
    train(Workload(**settings["workload"]), timer, settings["device"], settings["best"])


if __name__ == "__main__":
    main()
