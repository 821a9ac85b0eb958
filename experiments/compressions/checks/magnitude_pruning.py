"""Magnitude pruning of a pre-trained encoder, before a task is learned."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bertwright.compression.pruning.weight_pruning_methods import DensityPruning, top_mask
from bertwright.core.rng import stream_key
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult
from experiments.analyses.expecting import ExpectedValue, expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, accuracy_claim
from experiments.compressions.first_steps import same_weights
from experiments.compressions.matrix_files import MatrixFormat, load_matrices, save_matrices
from experiments.compressions.toy_models import ToyModels

TASK = "majority"
PRUNED_FRACTIONS, QUICK_PRUNED_FRACTIONS = (0.3, 0.6, 0.9), (0.4, 0.9)
SUBLAYERS = ("attention", "feed_forward")


class RandomPruning(DensityPruning):
    """Random pruning, the baseline of any other."""

    kind: Literal["random"] = "random"
    draw_index: int = 0
    learns_scores: ClassVar[bool] = False

    def gates(
        self, scores: Mapping[str, Tensor], level: float, rng: DropoutRng | None
    ) -> dict[str, Tensor]:
        return {
            name: top_mask(self._random_scores(name, scores_of_matrix), level)
            for name, scores_of_matrix in scores.items()
        }

    def _random_scores(self, name: str, like: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(
            stream_key(self.draw_index, "random pruning", name) >> 1
        )
        return torch.rand(like.shape, generator=generator)


def run(toy: ToyModels) -> CheckResults:
    """Prune three to nine of ten weights, by magnitude or at random."""
    yield from _exact_checks(toy)
    fractions = QUICK_PRUNED_FRACTIONS if toy.is_quick else PRUNED_FRACTIONS
    scores: dict[str, list[list[float]]] = {"magnitude": [], "random": []}
    for kind, kind_scores in scores.items():
        for fraction in fractions:
            runs = (_fine_tune_pruned(toy, seed, kind, 1 - fraction) for seed in toy.seeds)
            kind_scores.append([run.scores[0] for run in runs])
    for fraction, values, others in zip(fractions, *scores.values(), strict=True):
        yield accuracy_claim(f"{fraction:.0%} pruned", values, "random pruning", others)


def _fine_tune_pruned(
    toy: ToyModels, seed: int, kind: str | None, density: float, output: Path | None = None
) -> FineTuningResult:
    """Fine-tune an encoder with a constant density from the first step on."""
    settings: dict[str, Any] = {}
    if kind is not None:
        draw = {"draw_index": seed} if kind == "random" else {}
        settings["adaptation"] = {"kind": kind, "density": density, **draw}
    return toy.finetune(toy.pretrained, TASK, seed, output=output, max_grad_norm=None, **settings)


def _exact_checks(toy: ToyModels) -> CheckResults:
    """Check that density 1 is plain fine-tuning, and that the density is exact, also in files."""
    plain, dense = (_fine_tune_pruned(toy, 0, kind, 1.0) for kind in (None, "magnitude"))
    yield expect_same("density 1 is fine-tuning, bit for bit", same_weights(plain, dense), True)
    _fine_tune_pruned(toy, 0, "magnitude", 0.6, toy.folder / "c14")
    model = load_fine_tuned_model(toy.folder / "c14", "float32")
    matrices = _matrices(model)
    wrong = [
        name for name, m in matrices.items() if m.count_nonzero() != int(0.6 * m.numel() + 1e-6)
    ]
    yield expect_same("matrices with another density than 60 %", wrong, [])
    yield from _file_sizes(toy, matrices)


def _matrices(model: FineTunedModel) -> dict[str, Tensor]:
    parameters = dict(model.task_model.encoder.named_parameters())
    names = matrix_names(model.task_model.encoder, SUBLAYERS)
    return {name: parameters[name].detach() for name in names}


def _file_sizes(toy: ToyModels, matrices: Mapping[str, Tensor]) -> Iterator[ExpectedValue]:
    """Check the size of each format against its file."""
    dense = sum(4 * matrix.numel() for matrix in matrices.values())
    expected = {MatrixFormat("bitmap"): 1 / (0.6 + 1 / 32), MatrixFormat("columns"): 1 / 1.2}
    for format, ratio in expected.items():
        layout, file = format.layout, toy.folder / f"c14.{format.layout}"
        num_bytes = sum(format.num_bytes(matrix) for matrix in matrices.values())
        header = save_matrices(file, matrices, format)
        yield expect_equal(f"bytes by {layout}", file.stat().st_size - header, num_bytes, 0)
        yield expect_equal(f"times smaller by {layout}", dense / num_bytes, ratio, 0.02)
        loaded = load_matrices(file, format)
        unequal = [name for name, matrix in matrices.items() if not matrix.equal(loaded[name])]
        yield expect_same(f"matrices that differ when loaded by {layout}", unequal, [])


CHECK = CompressionCheck(
    "C14",
    "magnitude",
    "How many of the smallest weights can be pruned, and are they the right ones?",
    "Gordon et al. 2020",
    run,
)
