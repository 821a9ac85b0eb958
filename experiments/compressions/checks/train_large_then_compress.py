"""Train large, then compress: encoders of several sizes, trained with equal FLOPs, pruned to equal
size."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.encoder.encoder import Encoder
from bertwright.models.costs import training_flops
from bertwright.models.model import Model
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.study import EqualCost
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from experiments.analyses.expecting import expect_equal
from experiments.compressions.check import (
    CheckResults,
    CompressionCheck,
    MeasuredValue,
    accuracy_claim,
)
from experiments.compressions.matrix_files import MatrixFormat, load_matrices, save_matrices
from experiments.compressions.toy_models import ToyModels, pruning_settings

TASK = "majority"
LayersAndWidth = tuple[int, int]
"""The number of layers, and the width."""

SMALL: LayersAndWidth = (2, 64)
"""The size whose dense 8-bit encoder is the limit."""

LARGER, QUICK_LARGER = ((4, 64), (8, 64)), ((4, 64),)
"""The sizes that are pruned to the limit."""

DENSE, SPARSE = MatrixFormat("all", "int8"), MatrixFormat("bitmap", "int8")
SUBLAYERS = ("attention", "feed_forward")


@dataclass(frozen=True)
class CompressedEncoder:
    """A compressed encoder: the density of its blocks, its score, and unexplained bytes of its
    files."""

    density: float
    score: float
    unaccounted_bytes: int


def run(toy: ToyModels) -> CheckResults:
    """Pre-train each size with equal FLOPs, fine-tune and prune it, and round it to 8 bits."""
    larger = QUICK_LARGER if toy.is_quick else LARGER
    # As many FLOPs as the smallest pruned size takes in the usual number of steps.
    cost = EqualCost(flops=training_flops(_recipe(toy, larger[0]), toy.data.tokenizer.vocab_size))
    encoders: dict[LayersAndWidth, list[CompressedEncoder]] = {}
    for size in (SMALL, *larger):
        encoders[size] = []
        yield from _train_size(toy, size, cost, encoders[size])
    unaccounted = max(e.unaccounted_bytes for group in encoders.values() for e in group)
    yield expect_equal("bytes of files, less names and the computed size", unaccounted, 0, 0)
    dense = [encoder.score for encoder in encoders[SMALL]]
    for size in larger:
        yield accuracy_claim(
            f"{_size_name(size)}, {encoders[size][0].density:.0%} kept",
            [encoder.score for encoder in encoders[size]],
            f"dense {_size_name(SMALL)}",
            dense,
        )


def _train_size(
    toy: ToyModels, size: LayersAndWidth, cost: EqualCost, encoders: list[CompressedEncoder]
) -> CheckResults:
    """Measure the pre-training of a size; append its compressed encoders."""
    num_steps = cost.num_steps(_recipe(toy, size), toy.data.tokenizer.vocab_size)
    losses: list[float] = []
    for seed in toy.seeds:
        recipe = _recipe(toy, size, steps=num_steps, seed=seed)
        result = toy.pretrain(f"c20-{_size_name(size)}-{seed}", recipe)
        losses.append(result.metrics["masked_loss"])
        model = TextModel(*load_model(result.folder), "float32")
        density = _density_within(model.model.encoder, _dense_bytes(toy, SMALL))
        encoders.append(_compress(toy, model, density, seed))
    yield MeasuredValue(f"masked loss, {_size_name(size)}, {num_steps} steps", losses)


def _size_name(size: LayersAndWidth) -> str:
    return f"{size[0]}x{size[1]}"


def _recipe(
    toy: ToyModels, size: LayersAndWidth, steps: int | None = None, seed: int = 0
) -> Recipe:
    changes = f"encoder.depth.layers={size[0]}", f"encoder.width={size[1]}"
    return toy.recipe(*changes, steps=steps, seed=seed)


def _dense_bytes(toy: ToyModels, size: LayersAndWidth) -> int:
    """Return the size of a dense encoder in 8 bits."""
    model = Model.build(_recipe(toy, size), toy.data.tokenizer.vocab_size)
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
    "With equal FLOPs and equal bytes, is a large encoder that is pruned better than a small one?",
    "Li et al. 2020",
    run,
)
