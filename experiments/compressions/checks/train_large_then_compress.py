"""Train large, then compress: encoders of many sizes, trained in equal time and compressed to equal
size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.core.statistics import estimate
from bertwright.encoder.encoder import Encoder
from bertwright.models.model import Model
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from experiments.analyses.expecting import expect_equal
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.matrix_files import MatrixFormat, load_matrices, save_matrices
from experiments.compressions.toy_models import ToyModels, pruning_settings

TASK = "sentiment"
LayersAndWidth = tuple[int, int]
"""The number of layers, and the width."""

SIZES, QUICK_SIZES = tuple(product((2, 4, 8), (32, 64, 128))), ((2, 32), (4, 64))
SECONDS, QUICK_SECONDS, NUM_SEEDS = 20.0, 1.0, 3
REFERENCE_SIZES: tuple[LayersAndWidth, ...] = ((8, 64), (4, 64))
QUICK_REFERENCE_SIZES: tuple[LayersAndWidth, ...] = ((2, 64),)
"""The sizes whose dense 8-bit encoders are the limits."""

MIN_DENSITY = 0.02
"""The minimum density of blocks; sizes that would need less are left out."""

DENSE, SPARSE = MatrixFormat("all", "int8"), MatrixFormat("bitmap", "int8")
SUBLAYERS = ("attention", "feed_forward")


@dataclass(frozen=True)
class CompressedEncoder:
    """A compressed encoder: the density of its blocks, its score, and unexplained bytes of its
    files."""

    density: float
    score: float
    unaccounted_bytes: int


EncodersBySize = dict[tuple[LayersAndWidth, LayersAndWidth], list[CompressedEncoder]]
"""Compressed encoders by limit and by size, one for each seed."""


def run(toy: ToyModels) -> CheckResults:
    """Pre-train each size for equal time, fine-tune and prune it, and round it to 8 bits."""
    encoders: EncodersBySize = {}
    for size in QUICK_SIZES if toy.is_quick else SIZES:
        yield from _train_size(toy, size, encoders)
    unaccounted = max(e.unaccounted_bytes for group in encoders.values() for e in group)
    yield expect_equal("bytes of files, less names and the computed size", unaccounted, 0, 0)
    for (limit, size), group in encoders.items():
        sizes = f"{_size_name(size)} as small as {_size_name(limit)}"
        name = f"accuracy, {sizes}, {group[0].density:.0%} kept"
        yield MeasuredValue(name, [encoder.score for encoder in group])
    yield from _best(encoders)


def _train_size(toy: ToyModels, size: LayersAndWidth, encoders: EncodersBySize) -> CheckResults:
    losses: list[float] = []
    steps: list[float] = []
    for seed in range(1 if toy.is_quick else NUM_SEEDS):
        recipe = toy.recipe(*_recipe_changes(size), seed=seed)
        seconds = QUICK_SECONDS if toy.is_quick else SECONDS
        result = toy.pretrain(f"c20-{_size_name(size)}-{seed}", recipe, seconds=seconds)
        losses.append(result.metrics["masked_loss"])
        steps.append(result.num_steps)
        model = TextModel(*load_model(result.folder), "float32")
        for limit in QUICK_REFERENCE_SIZES if toy.is_quick else REFERENCE_SIZES:
            density = _density_within(model.model.encoder, _dense_bytes(toy, limit))
            if density >= MIN_DENSITY:
                compressed = _compress(toy, model, density, seed)
                encoders.setdefault((limit, size), []).append(compressed)
    yield MeasuredValue(f"steps, {_size_name(size)}", steps)
    yield MeasuredValue(f"masked loss, {_size_name(size)}", losses)


def _best(encoders: EncodersBySize) -> Iterator[MeasuredValue]:
    """Compare the best dense encoder with the best pruned one, for each limit."""
    for limit in dict.fromkeys(limit for limit, _ in encoders):
        scores: dict[bool, dict[str, Sequence[float]]] = {True: {}, False: {}}
        for (other_limit, size), group in encoders.items():
            if other_limit == limit:
                is_pruned = group[0].density < 1
                scores[is_pruned][_size_name(size)] = [encoder.score for encoder in group]
        if scores[True] and scores[False]:
            pruned, dense = (max(s, key=lambda n: estimate(s[n]).mean) for s in scores.values())
            name = f"accuracy as small as {_size_name(limit)}, best pruned ({pruned})"
            baseline = f"best dense ({dense})", scores[False][dense]
            yield MeasuredValue(name, scores[True][pruned], *baseline)


def _size_name(size: LayersAndWidth) -> str:
    return f"{size[0]}x{size[1]}"


def _recipe_changes(size: LayersAndWidth) -> tuple[str, str]:
    return f"encoder.depth.layers={size[0]}", f"encoder.width={size[1]}"


def _dense_bytes(toy: ToyModels, size: LayersAndWidth) -> int:
    """Return the size of a dense encoder in 8 bits."""
    model = Model.build(toy.recipe(*_recipe_changes(size)), toy.data.tokenizer.vocab_size)
    blocks, others = _matrices(model.encoder)
    return _vector_bytes(model.encoder) + _matrix_bytes({**blocks, **others}, DENSE)


def _density_within(encoder: Encoder, max_bytes: int) -> float:
    """Return the density of blocks that fits into a number of bytes."""
    blocks, others = _matrices(encoder)
    available = max_bytes - _vector_bytes(encoder) - _matrix_bytes(others, DENSE)
    if _matrix_bytes(blocks, DENSE) <= available:
        return 1.0
    empty = {name: torch.zeros_like(matrix) for name, matrix in blocks.items()}
    num_weights = sum(matrix.numel() for matrix in blocks.values())
    density = (available - _matrix_bytes(empty, SPARSE)) / num_weights
    return int(100 * density) / 100


def _compress(toy: ToyModels, model: TextModel, density: float, seed: int) -> CompressedEncoder:
    """Fine-tune and prune a model, round it, and score it as loaded from its files."""
    settings: dict[str, Any] = (
        {} if density == 1 else {"adaptation": pruning_settings("magnitude", density)}
    )
    tuned = toy.finetune(model, TASK, seed, **settings).model
    encoder = tuned.task_model.encoder
    unaccounted, parameters = 0, dict(encoder.named_parameters())
    formats = (DENSE if density == 1 else SPARSE, DENSE)
    for matrices, format in zip(_matrices(encoder), formats, strict=True):
        loaded, excess = _round_trip(toy.folder / "c20.matrices", matrices, format)
        unaccounted = max(unaccounted, abs(excess))
        with torch.no_grad():
            for name, matrix in loaded.items():
                parameters[name].copy_(matrix)
    length = tuned.example_encoder.max_length
    rounded = FineTunedModel(tuned.task_model, tuned.tokenizer, tuned.task, length, "float32")
    score = evaluate(rounded, toy.evaluation_examples(TASK))["score"]
    return CompressedEncoder(density, score, unaccounted)


def _round_trip(
    file: Path, matrices: Mapping[str, Tensor], matrix_format: MatrixFormat
) -> tuple[dict[str, Tensor], int]:
    """Return matrices as loaded from a file, and the bytes of the file above the computed size."""
    header = save_matrices(file, matrices, matrix_format)
    excess = file.stat().st_size - header - _matrix_bytes(matrices, matrix_format)
    return load_matrices(file, matrix_format), excess


def _matrices(encoder: Encoder) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the matrices of blocks, and the others, which are tables."""
    names = set(matrix_names(encoder, SUBLAYERS))
    matrices = {n: p.detach() for n, p in encoder.named_parameters() if p.dim() == 2}
    blocks = {name: matrix for name, matrix in matrices.items() if name in names}
    return blocks, {name: matrix for name, matrix in matrices.items() if name not in names}


def _vector_bytes(encoder: Encoder) -> int:
    """Return the size of all parameters that are not matrices."""
    return sum(4 * p.numel() for p in encoder.parameters() if p.dim() < 2)


def _matrix_bytes(matrices: Mapping[str, Tensor], matrix_format: MatrixFormat) -> int:
    return sum(matrix_format.num_bytes(matrix) for matrix in matrices.values())


CHECK = CompressionCheck(
    "C20",
    "large-then-small",
    "With equal time and equal bytes, is a large encoder that is pruned better than a small one?",
    "Li et al. 2020",
    run,
    is_timed=True,
)
