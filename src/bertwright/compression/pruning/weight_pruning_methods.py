"""Weight pruning by magnitude, by movement, by movement above a threshold, and by L0 gates."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.compression.pruning.weight_pruning import WeightPruning
from bertwright.core.errors import UserError
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.modules.dropout_rng import DropoutRng, uniform_for_step
from bertwright.modules.hard_concrete import HardConcrete

MIN_DENSITY = 0.005
"""Fraction of a matrix that is kept at any threshold (Sanh et al. 2020, released code)."""


def num_kept_weights(num_weights: int, density: float) -> int:
    """Return the number of weights to keep, rounded down; 0.29 of 100 is 29."""
    return int(density * num_weights + 1e-6)


@torch.no_grad()
def top_mask(values: Tensor, density: float) -> Tensor:
    """Return a bool mask of the highest values; of equal values the first ones are kept."""
    return _top_k_mask(values, num_kept_weights(values.numel(), density))


@torch.no_grad()
def threshold_mask(scores: Tensor, threshold: float) -> Tensor:
    """Return a bool mask of scores whose sigmoid is above a threshold, at least ``MIN_DENSITY``."""
    mask = torch.sigmoid(scores) > threshold
    min_kept = max(int(MIN_DENSITY * scores.numel()), 1)
    return mask if int(mask.sum()) >= min_kept else _top_k_mask(scores, min_kept)


def straight_through(mask: Tensor, scores: Tensor) -> Tensor:
    """Return a mask as floats with the gradient of the scores (straight-through estimator)."""
    return mask.to(scores.dtype) + (scores - scores.detach())


def _top_k_mask(values: Tensor, num_kept: int) -> Tensor:
    flat = values.flatten().float()
    if num_kept in (0, len(flat)):
        return torch.full_like(values, bool(num_kept), dtype=torch.bool)
    threshold = flat.topk(num_kept, sorted=False).values.amin()
    mask = flat > threshold
    ties = (flat == threshold).nonzero().flatten()
    mask[ties[: num_kept - int(mask.sum())]] = True
    return mask.view_as(values)


DENSITY_STEPS = 200
"""Resolution of the density: masks are recomputed only when it changes by one of these steps.

Within half a step of the final density, the final density is used exactly."""

GATE_STREAM = 67
"""Random stream for gates."""

GATE_DISTRIBUTION = HardConcrete(temperature=2 / 3, low=-0.1, high=1.1)


class DensityPruning(WeightPruning):
    """A weight pruning that keeps a ``density`` of the weights, a number or a schedule."""

    density: NumberOrSchedule

    def level(self, fraction: float) -> float:
        density, last = self.density.at(fraction), self.density.at(1.0)
        is_last = abs(density - last) < 0.5 / DENSITY_STEPS
        rounded = last if is_last else round(density * DENSITY_STEPS) / DENSITY_STEPS
        return min(max(rounded, 0.0), 1.0)

    def is_done(self, level: float, fraction: float) -> bool:
        return level <= self.level(1.0)

    def require_nonempty(self, shapes: Mapping[str, torch.Size]) -> None:
        last = self.level(1.0)
        for name, shape in shapes.items():
            if not num_kept_weights(shape.numel(), last):
                raise UserError(
                    f"adaptation.density: a final density of {self.density.at(1.0):g} leaves none "
                    f"of the {shape.numel()} weights of {name}: choose a higher one"
                )


class MagnitudePruning(DensityPruning):
    """Magnitude pruning: keep the largest weights per matrix or over all (Gordon et al. 2020)."""

    kind: Literal["magnitude"] = "magnitude"
    scope: Literal["matrix", "all"] = "matrix"
    learns_scores: ClassVar[bool] = False

    def require_nonempty(self, shapes: Mapping[str, torch.Size]) -> None:
        total = torch.Size([sum(shape.numel() for shape in shapes.values())])
        super().require_nonempty(shapes if self.scope == "matrix" else {"all matrices": total})

    def gates(
        self, scores: Mapping[str, Tensor], level: float, rng: DropoutRng | None
    ) -> dict[str, Tensor]:
        if self.scope == "matrix":
            return {name: top_mask(magnitude, level) for name, magnitude in scores.items()}
        magnitudes = torch.cat([magnitude.flatten() for magnitude in scores.values()])
        masks = top_mask(magnitudes, level).split([m.numel() for m in scores.values()])
        return {
            name: mask.view_as(magnitude)
            for mask, (name, magnitude) in zip(masks, scores.items(), strict=True)
        }


class MovementPruning(DensityPruning):
    """Movement pruning: keep the weights in each matrix that move away from zero.

    The gradient of a weight's score is the weight times its gradient; the weights with the highest
    scores are kept (Sanh et al. 2020, section 4). There scores start at ``zero``, in runs of tens
    of thousands of steps; runs of hundreds ended at the majority class. With ``magnitude`` they
    start at the absolute weights (Sehwag et al. 2020), so a short run begins with magnitude
    pruning.
    """

    kind: Literal["movement"] = "movement"
    initial_scores: Literal["magnitude", "zero"] = "magnitude"

    def init_scores(self, weight: Tensor) -> Tensor:
        return weight.abs() if self.initial_scores == "magnitude" else super().init_scores(weight)

    def gates(
        self, scores: Mapping[str, Tensor], level: float, rng: DropoutRng | None
    ) -> dict[str, Tensor]:
        return {n: straight_through(top_mask(score, level), score) for n, score in scores.items()}


class SoftMovementPruning(WeightPruning):
    """Soft movement pruning: keep the weights whose score's sigmoid exceeds a rising ``threshold``.

    Every matrix keeps as many as it needs (Sanh et al. 2020, section 4.3). The mean sigmoid, over
    each matrix and then over all, is multiplied by ``penalty`` at the final threshold,
    proportionally less before, and added to the loss. Scores are trained
    ``score_learning_rate_scale`` times faster than weights.
    """

    kind: Literal["movement-soft"] = "movement-soft"
    threshold: NumberOrSchedule
    penalty: float = Field(default=400.0, ge=0)
    score_learning_rate_scale: float = Field(default=300.0, gt=0)
    has_penalty: ClassVar[bool] = True

    @property
    def score_scale(self) -> float:
        return self.score_learning_rate_scale

    def level(self, fraction: float) -> float:
        return self.threshold.at(fraction)

    def is_done(self, level: float, fraction: float) -> bool:
        return level >= self.level(1.0) * (1 - 1 / DENSITY_STEPS)

    def gates(
        self, scores: Mapping[str, Tensor], level: float, rng: DropoutRng | None
    ) -> dict[str, Tensor]:
        return {
            name: straight_through(threshold_mask(score, level), score)
            for name, score in scores.items()
        }

    def compute_penalty(self, scores: Iterable[Tensor], level: float) -> Tensor:
        ratio = level / last if (last := self.level(1.0)) else 1.0
        return self.penalty * ratio * _mean_of_means(torch.sigmoid(score) for score in scores)


class HardConcretePruning(WeightPruning):
    """L0 regularisation: every weight has a random hard-concrete gate with trained probability.

    Open gates add ``penalty`` times their mean over each matrix and then over all (Louizos et al.
    2018; Sanh et al. 2020, section 5). The finished model has deterministic gates, some of them
    closed, so the last epoch is kept. Scores are trained ``score_learning_rate_scale`` times faster
    than weights.
    """

    kind: Literal["l0"] = "l0"
    penalty: NumberOrSchedule = ConstantSchedule(value=125.0)
    initial_score: float = 2.197
    score_learning_rate_scale: float = Field(default=3000.0, gt=0)
    has_penalty: ClassVar[bool] = True

    @property
    def score_scale(self) -> float:
        return self.score_learning_rate_scale

    def init_scores(self, weight: Tensor) -> Tensor:
        return torch.full_like(weight, self.initial_score)

    def level(self, fraction: float) -> float:
        return self.penalty.at(fraction)

    def is_done(self, level: float, fraction: float) -> bool:
        return fraction > 1 - 1e-9

    def gates(
        self, scores: Mapping[str, Tensor], level: float, rng: DropoutRng | None
    ) -> dict[str, Tensor]:
        return {
            name: GATE_DISTRIBUTION.gates(
                score, None if rng is None else _uniform_like(rng.for_block(index), score)
            )
            for index, (name, score) in enumerate(scores.items())
        }

    def compute_penalty(self, scores: Iterable[Tensor], level: float) -> Tensor:
        return level * _mean_of_means(GATE_DISTRIBUTION.open_probability(s) for s in scores)


def _mean_of_means(values: Iterable[Tensor]) -> Tensor:
    """Return the mean over matrices of the mean of each matrix."""
    return torch.stack([value.mean() for value in values]).mean()


def _uniform_like(rng: DropoutRng, like: Tensor) -> Tensor:
    indices = torch.arange(like.numel(), dtype=torch.int32, device=like.device)
    return uniform_for_step(rng, indices.view(like.shape), GATE_STREAM)
