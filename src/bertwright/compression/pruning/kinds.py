"""The prunings: by size, by movement, by movement above a threshold, by gates that are drawn."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.analysis.hard_concrete import HardConcrete
from bertwright.compression.pruning.masks import above, as_scores, highest, how_many
from bertwright.compression.pruning.pruned import Pruned
from bertwright.encoder.kernels.noise import Noise, uniform
from bertwright.errors import UserError
from bertwright.schedules import Constant, Value

FINENESS = 200
"""Masks are drawn anew where the share that is kept has changed by so small a part; within half of
one of the last share it is the last itself, to the weight."""

SITE = 67
"""Of the random numbers that open gates."""

GATE = HardConcrete(temperature=2 / 3, low=-0.1, high=1.1)


class ShareKept(Pruned):
    """An ever smaller share of the weights stays: ``kept``, a number or a schedule."""

    kept: Value

    def level(self, progress: float) -> float:
        share, last = self.kept.at(progress), self.kept.at(1.0)
        near = abs(share - last) < 0.5 / FINENESS
        return min(max(last if near else round(share * FINENESS) / FINENESS, 0.0), 1.0)

    def done(self, level: float, progress: float) -> bool:
        return level <= self.level(1.0)

    def require_left(self, shapes: Mapping[str, torch.Size]) -> None:
        last = self.level(1.0)
        for name, shape in shapes.items():
            if not how_many(shape.numel(), last):
                raise UserError(
                    f"adaptation.kept: {self.kept.at(1.0):g} in the end leaves none of the "
                    f"{shape.numel()} weights of {name}: keep more of them"
                )


class MagnitudePruning(ShareKept):
    """The weights that are largest stay, of each matrix or of all together (Gordon et al. 2020)."""

    kind: Literal["magnitude"] = "magnitude"
    among: Literal["matrix", "all"] = "matrix"
    learns: ClassVar[bool] = False

    def require_left(self, shapes: Mapping[str, torch.Size]) -> None:
        together = torch.Size([sum(shape.numel() for shape in shapes.values())])
        super().require_left(shapes if self.among == "matrix" else {"all matrices": together})

    def gates(
        self, scores: Mapping[str, Tensor], level: float, noise: Noise | None
    ) -> dict[str, Tensor]:
        if self.among == "matrix":
            return {name: highest(size, level) for name, size in scores.items()}
        together = torch.cat([size.flatten() for size in scores.values()])
        parts = highest(together, level).split([size.numel() for size in scores.values()])
        return {
            name: part.view_as(size)
            for part, (name, size) in zip(parts, scores.items(), strict=True)
        }


class MovementPruning(ShareKept):
    """The weights that move away from zero stay: each has a score, to which its gradient times the
    weight is the gradient, and in each matrix those of the highest scores remain (Sanh et al. 2020,
    section 4)."""

    kind: Literal["movement"] = "movement"

    def gates(
        self, scores: Mapping[str, Tensor], level: float, noise: Noise | None
    ) -> dict[str, Tensor]:
        return {name: as_scores(highest(own, level), own) for name, own in scores.items()}


class SoftMovementPruning(Pruned):
    """The weights stay whose score, in a sigmoid, is above a ``threshold``, which rises: so many in
    each matrix as it needs (Sanh et al. 2020, section 4.3).

    The mean of these sigmoids, over each matrix and over all, costs ``penalty`` when the threshold
    is the last, before as much less as it is lower. Scores learn ``score_pace`` times as
    fast as weights.
    """

    kind: Literal["movement-soft"] = "movement-soft"
    threshold: Value
    penalty: float = Field(default=400.0, ge=0)
    score_pace: float = Field(default=300.0, gt=0)
    penalised: ClassVar[bool] = True

    @property
    def pace(self) -> float:
        return self.score_pace

    def level(self, progress: float) -> float:
        return self.threshold.at(progress)

    def done(self, level: float, progress: float) -> bool:
        return level >= self.level(1.0) * (1 - 1 / FINENESS)

    def gates(
        self, scores: Mapping[str, Tensor], level: float, noise: Noise | None
    ) -> dict[str, Tensor]:
        return {name: as_scores(above(own, level), own) for name, own in scores.items()}

    def cost(self, scores: Iterable[Tensor], level: float) -> Tensor:
        risen = level / last if (last := self.level(1.0)) else 1.0
        return self.penalty * risen * _mean(torch.sigmoid(own) for own in scores)


class GatePruning(Pruned):
    """Each weight has a gate that is drawn anew in every step and learns how likely it is to be
    open, which costs ``penalty`` in the mean over each matrix and over all (Louizos et al. 2018;
    Sanh et al. 2020, section 5). In the finished model nothing is drawn, and some are shut: the
    last epoch is the one that is kept. Scores learn ``score_pace`` times as fast as weights."""

    kind: Literal["l0"] = "l0"
    penalty: Value = Constant(value=125.0)
    first_score: float = 2.197
    score_pace: float = Field(default=3000.0, gt=0)
    penalised: ClassVar[bool] = True

    @property
    def pace(self) -> float:
        return self.score_pace

    @property
    def start(self) -> float:
        return self.first_score

    def level(self, progress: float) -> float:
        return self.penalty.at(progress)

    def done(self, level: float, progress: float) -> bool:
        return progress > 1 - 1e-9

    def gates(
        self, scores: Mapping[str, Tensor], level: float, noise: Noise | None
    ) -> dict[str, Tensor]:
        return {
            name: GATE.gates(own, None if noise is None else _drawn(noise.within(number), own))
            for number, (name, own) in enumerate(scores.items())
        }

    def cost(self, scores: Iterable[Tensor], level: float) -> Tensor:
        return level * _mean(GATE.open_chance(own) for own in scores)


def _mean(values: Iterable[Tensor]) -> Tensor:
    """Of matrices, in the mean of each."""
    return torch.stack([own.mean() for own in values]).mean()


def _drawn(noise: Noise, like: Tensor) -> Tensor:
    place = torch.arange(like.numel(), dtype=torch.int32, device=like.device)
    return uniform(noise, place.view(like.shape), SITE)
