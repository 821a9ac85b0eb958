"""Encoders of many sizes that have had equal time and are made equally small: is a large one that
loses most of its weights better than a small one that loses none?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.analysis.planted.expecting import equal
from bertwright.compression.storage import Form, load_matrices, save_matrices
from bertwright.encoder.encoder import Encoder
from bertwright.model.folder import load_model
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate
from bertwright.studies.compression_checks.ground import Ground, pruned
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned

TASK = "sentiment"
Size = tuple[int, int]
"""Layers, and width."""

SIZES, QUICK_SIZES = tuple(product((2, 4, 8), (32, 64, 128))), ((2, 32), (4, 64))
SECONDS, QUICK_SECONDS, NUM_SEEDS = 20.0, 1.0, 3
AS_SMALL_AS: tuple[Size, ...] = ((8, 64), (4, 64))
QUICK_AS_SMALL_AS: tuple[Size, ...] = ((2, 64),)
"""Those that are as large in 8 bits as any may be."""

LEAST = 0.02
"""Of the weights of blocks; a size of which less would have to stay is left out."""

WHOLE, SPARSE = Form("all", "int8"), Form("bitmap", "int8")
SUBLAYERS = ("attention", "feed_forward")


@dataclass(frozen=True)
class Small:
    """What became of an encoder: the share of the weights of its blocks that is ``kept``, what it
    scores, and by how much its files are larger than was told."""

    kept: float
    score: float
    untold_bytes: int


Found = dict[tuple[Size, Size], list[Small]]
"""By as small as what, and by size: one for each seed."""


def run(ground: Ground) -> Came:
    """Each size reads for as long, then learns a task while weights go, and is kept in 8 bits."""
    found: Found = {}
    for size in QUICK_SIZES if ground.quick else SIZES:
        yield from _of_a_size(ground, size, found)
    untold = max(small.untold_bytes for smalls in found.values() for small in smalls)
    yield equal("bytes of files, names aside, less those that were told", untold, 0, 0)
    for (most, size), smalls in found.items():
        what = f"accuracy, {_name(size)} as small as {_name(most)}, {smalls[0].kept:.0%} kept"
        yield Measured(what, [small.score for small in smalls])
    yield from _best(found)


def _of_a_size(ground: Ground, size: Size, found: Found) -> Came:
    losses: list[float] = []
    steps: list[float] = []
    for seed in range(1 if ground.quick else NUM_SEEDS):
        recipe = ground.recipe(*_changes(size), seed=seed)
        seconds = QUICK_SECONDS if ground.quick else SECONDS
        learned = ground.learned(f"c20-{_name(size)}-{seed}", recipe, seconds=seconds)
        losses.append(learned.figures["masked_loss"])
        steps.append(learned.steps)
        model = TextModel(*load_model(learned.path), "float32")
        for most in QUICK_AS_SMALL_AS if ground.quick else AS_SMALL_AS:
            kept = _fitting(model.model.encoder, _bytes_of(ground, most))
            if kept >= LEAST:
                small = _made_small(ground, model, kept, seed)
                found.setdefault((most, size), []).append(small)
    yield Measured(f"steps, {_name(size)}", steps)
    yield Measured(f"masked loss, {_name(size)}", losses)


def _best(found: Found) -> Iterator[Measured]:
    """Of those that fit as they are, and of those that were pruned, as small as something."""
    for most in dict.fromkeys(most for most, _ in found):
        scores: dict[bool, dict[str, Sequence[float]]] = {True: {}, False: {}}
        for (own, size), smalls in found.items():
            if own == most:
                of_size = [small.score for small in smalls]
                scores[smalls[0].kept < 1][_name(size)] = of_size
        if scores[True] and scores[False]:
            large, small = (max(s, key=lambda n: estimate(s[n]).mean) for s in scores.values())
            what = f"accuracy as small as {_name(most)}, best of the pruned ({large})"
            beside = f"best of the whole ({small})", scores[False][small]
            yield Measured(what, scores[True][large], *beside)


def _name(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


def _changes(size: Size) -> tuple[str, str]:
    return f"encoder.depth.layers={size[0]}", f"encoder.width={size[1]}"


def _bytes_of(ground: Ground, size: Size) -> int:
    """Of an encoder in 8 bits with all of its weights."""
    drawn = Model.build(ground.recipe(*_changes(size)), ground.data.tokenizer.size)
    blocks, others = _matrices(drawn.encoder)
    return _vectors(drawn.encoder) + _told({**blocks, **others}, WHOLE)


def _fitting(encoder: Encoder, most: int) -> float:
    """The share of the weights of blocks that can stay within so many bytes."""
    blocks, others = _matrices(encoder)
    left = most - _vectors(encoder) - _told(others, WHOLE)
    if _told(blocks, WHOLE) <= left:
        return 1.0
    nothing = {name: torch.zeros_like(matrix) for name, matrix in blocks.items()}
    weights = sum(matrix.numel() for matrix in blocks.values())
    share = (left - _told(nothing, SPARSE)) / weights
    return int(100 * share) / 100


def _made_small(ground: Ground, model: TextModel, kept: float, seed: int) -> Small:
    """The task is learned, weights go meanwhile, and what is left is rounded: it is scored as it is
    read from its files."""
    gone: dict[str, Any] = {} if kept == 1 else {"adaptation": pruned("magnitude", kept)}
    tuned = ground.finetuned(model, TASK, seed, **gone).model
    untold, known = 0, dict(tuned.net.encoder.named_parameters())
    forms = (WHOLE if kept == 1 else SPARSE, WHOLE)
    for matrices, form in zip(_matrices(tuned.net.encoder), forms, strict=True):
        read, more = _through_a_file(ground.folder / "c20.matrices", matrices, form)
        untold = max(untold, abs(more))
        with torch.no_grad():
            for name, matrix in read.items():
                known[name].copy_(matrix)
    small = FineTuned(tuned.net, tuned.tokenizer, tuned.task, tuned.maker.length, "float32")
    return Small(kept, evaluate(small, ground.judge(TASK))["score"], untold)


def _through_a_file(
    file: Path, matrices: Mapping[str, Tensor], form: Form
) -> tuple[dict[str, Tensor], int]:
    """Matrices as they are read again, and by how much the file is larger than was told."""
    header = save_matrices(file, matrices, form)
    return load_matrices(file, form), file.stat().st_size - header - _told(matrices, form)


def _matrices(encoder: Encoder) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Those of the blocks, and the others, which are tables."""
    names = set(matrices_of(encoder, SUBLAYERS))
    known = {n: p.detach() for n, p in encoder.named_parameters() if p.dim() == 2}
    blocks = {name: matrix for name, matrix in known.items() if name in names}
    return blocks, {name: matrix for name, matrix in known.items() if name not in names}


def _vectors(encoder: Encoder) -> int:
    """The bytes of what is no matrix."""
    return sum(4 * p.numel() for p in encoder.parameters() if p.dim() < 2)


def _told(matrices: Mapping[str, Tensor], form: Form) -> int:
    return sum(form.num_bytes(matrix) for matrix in matrices.values())


ROW = Row(
    "C20",
    "large-then-small",
    "With equal time and equal bytes, is a large encoder that is pruned better than a small one?",
    "Li et al. 2020",
    run,
    alone=True,
)
