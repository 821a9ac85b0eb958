"""Time of an encoder with pruned heads and units, against its remaining multiplications."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.compression.pruning.structured import Subnetwork, prune_model
from bertwright.core.rng import stream_key, uniform
from bertwright.interop.loading import load
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.runtime.process import configure_process

COLUMNS = {
    "pruned": "heads and units pruned",
    "texts": "texts",
    "tokens": "tokens per text",
    "milliseconds": "ms",
    "relative_time": "relative time",
    "relative_multiplications": "relative multiplications",
    "ratio": "time over multiplications",
    "difference": "largest difference from closed gates",
}
"""Columns of the table, by key."""

NUM_TOKENS = 64

TokenIds = list[list[int]]


@torch.inference_mode()
def compare(
    folder: Path, pruned_fractions: Sequence[float], batch_sizes: Sequence[int], num_rounds: int
) -> list[dict[str, Any]]:
    """Return a row for every pruned fraction and batch size, in float32 and in interleaved rounds
    with the whole model. The pruned heads and units are random."""
    configure_process()
    whole = load(folder, "float32")
    results: list[dict[str, Any]] = []
    for fraction in pruned_fractions:
        kept = _random_kept(whole.model, fraction)
        small = TextModel(prune_model(whole.model, kept), whole.tokenizer, "float32")
        multiplications = _num_multiplications(small.model) / _num_multiplications(whole.model)
        for batch_size in batch_sizes:
            sequences = _random_sequences(whole, batch_size)
            seconds = _time_interleaved((whole, small), sequences, num_rounds)
            relative_time = median(b / a for a, b in zip(*seconds, strict=True))
            results.append(
                {
                    "pruned": fraction,
                    "texts": batch_size,
                    "tokens": NUM_TOKENS,
                    "milliseconds": 1000 * median(seconds[1]),
                    "relative_time": relative_time,
                    "relative_multiplications": multiplications,
                    "ratio": relative_time / multiplications,
                    "difference": _difference(whole.model, small.model, kept, sequences),
                }
            )
    return results


def _random_kept(model: Model, pruned_fraction: float) -> Subnetwork:
    """Return random heads and units to keep in every block."""
    sizes = {
        "heads": [model.encoder.num_heads] * len(model.encoder.blocks),
        "units": _num_units(model),
    }
    return Subnetwork(
        **{
            name: [
                np.argsort(uniform(stream_key(0, name), block, np.arange(size)))[
                    round(pruned_fraction * size) :
                ].tolist()
                for block, size in enumerate(block_sizes)
            ]
            for name, block_sizes in sizes.items()
        }
    )


def _num_units(model: Model) -> list[int]:
    downs = (block.get_submodule("sublayers.feed_forward.down") for block in model.encoder.blocks)
    return [down.in_features for down in downs if isinstance(down, nn.Linear)]


def _num_multiplications(model: Model) -> int:
    """Return the multiplications per token, of matrices and of attention."""
    matrices = [m.weight for m in model.encoder.blocks.modules() if isinstance(m, nn.Linear)]
    context_widths = [
        block.get_submodule("sublayers.attention.output").get_parameter("weight").shape[1]
        for block in model.encoder.blocks
    ]
    return sum(weight.numel() for weight in matrices) + 2 * NUM_TOKENS * sum(context_widths)


def _random_sequences(model: TextModel, batch_size: int) -> TokenIds:
    drawn = uniform(
        stream_key(0, "pieces"), np.arange(batch_size)[:, None], np.arange(NUM_TOKENS)[None]
    )
    return np.floor(drawn * model.tokenizer.vocab_size).astype(int).tolist()


def _time_interleaved(
    models: tuple[TextModel, TextModel], sequences: TokenIds, num_rounds: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of both models by round, without the first, which warms up."""
    times = list[float](), list[float]()
    for _ in range(num_rounds + 1):
        for model, seconds in zip(models, times, strict=True):
            start = time.perf_counter()
            model.embed_ids(sequences)
            seconds.append(time.perf_counter() - start)
    return times[0][1:], times[1][1:]


def _difference(whole: Model, small: Model, kept: Subnetwork, sequences: TokenIds) -> float:
    """Return the largest difference from the whole model with closed gates."""
    token_ids, gates = torch.tensor(sequences[:1]), dict[str, Tensor]()
    assert kept.heads is not None
    assert kept.units is not None
    for block, (heads, units) in enumerate(zip(kept.heads, kept.units, strict=True)):
        gate = torch.zeros(whole.encoder.num_heads, 1, 1).index_fill(0, torch.tensor(heads), 1)
        gates[f"blocks.{block}.attention.context"] = gate
        width = _num_units(whole)[block]
        gate = torch.zeros(width).index_fill(0, torch.tensor(units), 1)
        gates[f"blocks.{block}.feed_forward.activation"] = gate
    with whole.encoder.gate(gates):
        expected = whole.encoder(token_ids)
    return float((small.encoder(token_ids) - expected).abs().max())
