"""Weights that go while a task is learned: the smallest, or those that move towards nothing.

What goes is masked until the end, and zero in the finished model, whose matrices are as large as
before: only surgery makes a model smaller or faster.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.roles import Role
from bertwright.errors import UserError
from bertwright.schedules import Schedule, Value
from bertwright.tasks.adaptation import Adaptation, Full
from bertwright.tasks.adaptation.changes import Changes
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure

FINENESS = 200
"""Masks are drawn anew where the share that is kept has changed by so small a part."""


class Pruned(Adaptation):
    """Everything is trained, and of the matrices in these sublayers an ever smaller share is kept.

    ``kept`` is that share, a number or a schedule.
    """

    kept: Value
    sublayers: tuple[Literal["attention", "feed_forward"], ...] = ("attention", "feed_forward")

    @property
    def left(self) -> Adaptation:
        return Full()

    def names(self, encoder: Encoder) -> list[str]:
        """Of the matrices."""
        found = matrices_of(encoder, self.sublayers)
        if not found:
            raise UserError(
                f"adaptation.sublayers: {' and '.join(self.sublayers)} of this encoder has no "
                f"matrices: choose another"
            )
        return found


class MagnitudePruning(Pruned):
    """The weights that are largest stay, of each matrix or of all together (Gordon et al. 2020)."""

    kind: Literal["magnitude"] = "magnitude"
    among: Literal["matrix", "all"] = "matrix"

    def changes(self, encoder: Encoder) -> Changes:
        return OfMagnitude(self, self.names(encoder))


class MovementPruning(Pruned):
    """The weights that move away from zero stay: each has a score, to which its gradient times the
    weight is the gradient, and in each matrix those of the highest scores remain (Sanh et al. 2020,
    section 4)."""

    kind: Literal["movement"] = "movement"

    def changes(self, encoder: Encoder) -> Changes:
        known = dict(encoder.named_parameters())
        return OfMovement(self, {name: known[name].shape for name in self.names(encoder)})


class Pruning(Changes):
    """What prunings share: how much of each matrix is kept now, and whether that is the least."""

    def __init__(self, kept: Schedule) -> None:
        super().__init__()
        self.kept, self.share = kept, 1.0
        self.procedures = [_Share(self)]

    @property
    def done(self) -> bool:
        return self.share <= in_steps(self.kept.at(1.0))

    def begin(self, seed: int) -> None:
        self.share = 1.0


class _Share(Procedure):
    """Which share is kept, step by step."""

    name = "kept"

    def __init__(self, pruning: Pruning) -> None:
        self._pruning = pruning

    def before_step(self, place: Place) -> None:
        self._pruning.share = in_steps(self._pruning.kept.at(place.progress))


def in_steps(share: float) -> float:
    """A share in steps of one part in :data:`FINENESS`."""
    return min(max(round(share * FINENESS), 0), FINENESS) / FINENESS


class OfMagnitude(Pruning):
    """Of :class:`MagnitudePruning`; a mask stays until another share is kept."""

    def __init__(self, choice: MagnitudePruning, names: list[str]) -> None:
        super().__init__(choice.kept)
        self.names, self.among = names, choice.among
        self._masks: dict[str, Tensor] = {}
        self._masked_for = -1.0

    def begin(self, seed: int) -> None:
        super().begin(seed)
        self._masked_for = -1.0

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.share != self._masked_for:
            self._masks = self._drawn({name: weights[name].detach().abs() for name in self.names})
            self._masked_for = self.share
        return {name: weights[name] * self._masks[name].to(weights[name]) for name in self.names}

    def _drawn(self, sizes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.among == "matrix":
            return {name: highest(size, self.share) for name, size in sizes.items()}
        together = torch.cat([size.flatten() for size in sizes.values()])
        parts = highest(together, self.share).split([size.numel() for size in sizes.values()])
        return {
            name: part.view_as(size)
            for part, (name, size) in zip(parts, sizes.items(), strict=True)
        }


class OfMovement(Pruning):
    """Of :class:`MovementPruning`, for matrices of these shapes."""

    def __init__(self, choice: MovementPruning, shapes: Mapping[str, torch.Size]) -> None:
        super().__init__(choice.kept)
        self.names = list(shapes)
        self.scores = nn.ParameterList(nn.Parameter(torch.empty(s)) for s in shapes.values())

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """Scores are no matrices: nothing decays."""
        return {name: Role("gate") for name, _ in self.named_parameters()}

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        super().begin(seed)
        for scores in self.scores:
            scores.zero_()

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: by_scores(weights[name], scores, self.share)
            for name, scores in zip(self.names, self.scores, strict=True)
        }


def by_scores(weight: Tensor, scores: Tensor, share: float) -> Tensor:
    """The weights of the highest scores, the others 0. To the scores, the mask is as if it were
    they themselves."""
    mask = highest(scores.detach(), share).to(weight)
    # Equal in value to the first product alone, which gives the scores no gradient.
    through = weight.detach() * (scores - scores.detach()).to(weight)
    return weight * mask + through


@torch.no_grad()
def highest(values: Tensor, share: float) -> Tensor:
    """Where the highest of them stand, bool: their number times the share, rounded down; of equals
    the first."""
    flat = values.flatten().float()
    number = int(share * len(flat) + 1e-6)
    if number in (0, len(flat)):
        return torch.full_like(values, bool(number), dtype=torch.bool)
    least = flat.kthvalue(len(flat) - number + 1).values
    found = flat > least
    equals = (flat == least).nonzero().flatten()
    found[equals[: number - int(found.sum())]] = True
    return found.view_as(values)
