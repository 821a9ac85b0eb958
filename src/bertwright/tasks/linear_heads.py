"""Linear heads on frozen features, fitted to convergence.

The loss of a linear head is convex, so that neither a learning rate nor a number of steps nor the
seed decides how good it is: L-BFGS finds the minimum (Liu and Nocedal 1989). How strongly weights
are drawn to 0 is chosen by cross-validation within the training examples. Features are in standard
form, so that one strength suits all of them. Where they are fewer than the numbers in each, the
same minimum is found among the combinations of the features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.tasks.heads import Head, Plain
from bertwright.tasks.parts import Part, target_type
from bertwright.tasks.splitting import fold_numbers, nested_order, num_groups
from bertwright.tasks.standard import Standard

STRENGTHS = tuple(np.logspace(-2, 3, 8).tolist())
"""What is tried: the inverse of the l2 penalty, times the numbers in a feature."""

USUAL_STRENGTH = 1.0
"""Where there are too few examples to choose."""

FOLDS, REPEATS = 5, 3
"""Of the cross-validation; it is repeated where examples are few."""

MANY_FEATURES = 1000
"""From here on once is enough."""

NEAR = 0.125
"""Scores that differ by less than this over the root of the number of examples count as equal."""

MAX_SELECTION_FEATURES = 4096
"""On so many features a strength is chosen, of whole examples."""

MAX_BASIS = 2000
"""So many features have a basis that is found in seconds."""

MAX_ITERATIONS = 200
"""Of L-BFGS."""

TOLERANCE, SELECTION_TOLERANCE = 1e-5, 1e-4
"""The gradient of the mean loss at which it ends; a strength is chosen by less exact minima."""

BIAS_PENALTY = 1e-6
"""Keeps the bias of a label without examples finite."""


@dataclass(frozen=True)
class LinearFit:
    """What became of a linear head.

    Attributes:
        l2: the penalty, half of which times the squared weights is added to the summed loss.
        loss: the mean loss over the training targets.
    """

    l2: float
    loss: float


def is_linear(head: Head) -> bool:
    """Return whether the outputs of a head are linear in what it reads, so that its loss is
    convex."""
    fixed = next(head.mix.parameters(), None) is None
    return isinstance(head.choice, Plain) and isinstance(head.out, nn.Linear) and fixed


@torch.no_grad()
def fit_linear_head(head: Head, part: Part, features: Sequence[Tensor], seed: int) -> LinearFit:
    """Fit a head to what it reads of every row, (k, W) each, in place; the seed draws folds.

    ``head.standard`` is the standard form of the features.
    """
    assert isinstance(head.out, nn.Linear)
    problem = _Problem.of(part, head, features)
    penalty = problem.width / _choose_strength(problem, seed)
    items = problem.items(range(len(part.items)))
    theta, loss = _minimise(problem, items, penalty)
    head.out.weight.copy_(problem.weight(theta).T)
    head.out.bias.copy_(theta[-1])
    return LinearFit(penalty, loss)


@dataclass(frozen=True)
class _Items:
    """Items that are trained on: their features (M, R), how many each has, and their targets."""

    features: Tensor
    sizes: Sequence[int]
    targets: Tensor


@dataclass(frozen=True)
class _Problem:
    """A part, and what its head reads.

    Attributes:
        features: (M, R) of all rows, one row after the other.
        offsets: (rows + 1,) where the features of each row begin.
        standard: the standard form that features are yet to be brought into, None where they are.
        basis: (W, R) the combinations of numbers in standard form that R stands for; None for the
            numbers themselves.
        width: W, the numbers of a feature.
    """

    part: Part
    features: Tensor
    offsets: NDArray[np.int64]
    standard: Standard | None
    basis: Tensor | None
    width: int

    @staticmethod
    def of(part: Part, head: Head, features: Sequence[Tensor]) -> "_Problem":
        offsets = np.cumsum([0, *map(len, features)])
        mixed = head.mix(torch.cat(list(features)).float())
        assert head.standard is not None, "features are brought into standard form"
        standard = head.standard.to(mixed.device)
        number, width = mixed.shape
        if 2 * number > width or number > MAX_BASIS:
            return _Problem(part, mixed, offsets, standard, None, width)
        standardised = standard(mixed).double()
        values, vectors = torch.linalg.eigh(standardised @ standardised.T)
        kept = values > 1e-10 * values[-1]
        scale, vectors = values[kept].sqrt(), vectors[:, kept]
        basis = (standardised.T @ (vectors / scale)).float()
        return _Problem(part, (vectors * scale).float(), offsets, None, basis, width)

    def items(self, numbers: Sequence[int]) -> _Items:
        """Return the items of these numbers."""
        part, device = self.part, self.features.device
        bounds = [
            (int(self.offsets[item.start]), int(self.offsets[item.stop]))
            for item in (part.items[number] for number in numbers)
        ]
        features = self.features
        if sum(stop - start for start, stop in bounds) < len(features):
            rows = np.concatenate([np.arange(*of) for of in bounds])
            features = features[torch.from_numpy(rows).to(device)]
        targets = [target for number in numbers for target in part.targets[number]]
        return _Items(
            features,
            [stop - start for start, stop in bounds],
            torch.tensor(targets, dtype=target_type(part), device=device),
        )

    def outputs(self, features: Tensor, theta: Tensor) -> Tensor:
        """Return those (m, K) of features (m, R); ``theta`` (R + 1, K) ends with the bias."""
        if self.standard is None:
            return features @ theta[:-1] + theta[-1]
        weight = theta[:-1] / self.standard.spread[:, None]
        return features @ weight + (theta[-1] - self.standard.centre @ weight)

    def weight(self, theta: Tensor) -> Tensor:
        """Return the weights (W, K) over numbers in standard form."""
        return theta[:-1] if self.basis is None else self.basis @ theta[:-1]


def _minimise(
    problem: _Problem,
    items: _Items,
    penalty: float,
    tolerance: float = TOLERANCE,
    start: Tensor | None = None,
) -> tuple[Tensor, float]:
    """Return the parameters (R + 1, K) of the least loss, and the mean loss without the penalty."""
    from scipy.optimize import minimize  # which most trainings do without

    answering, count = problem.part.answering, max(len(items.targets), 1)
    zeros = items.features.new_zeros(problem.features.shape[1] + 1, answering.num_outputs)
    shape, begin = zeros.shape, zeros if start is None else start

    def mean_loss(theta: Tensor) -> Tensor:
        outputs = problem.outputs(items.features, theta)
        return answering.loss(outputs, items.sizes, items.targets)[0] / count

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        theta = torch.from_numpy(flat).to(zeros).view(shape).requires_grad_()
        with torch.enable_grad():
            shrunk = penalty / count * theta[:-1].square().sum()
            total = mean_loss(theta) + (shrunk + BIAS_PENALTY * theta[-1].square().sum()) / 2
            (gradient,) = torch.autograd.grad(total, theta)
        return float(total.detach()), gradient.flatten().double().cpu().numpy()

    result: Any = minimize(
        value_and_gradient,
        begin.flatten().double().cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS, "gtol": tolerance, "ftol": tolerance / 100},
    )
    theta = torch.from_numpy(result.x).to(zeros).view(shape)
    return theta, float(mean_loss(theta))


def _choose_strength(problem: _Problem, seed: int) -> float:
    """Return the strength of the least loss on examples that it was not fitted to, among those that
    score as well as the best but for a small part of what chance does: a metric that counts rare
    labels is not served by the least loss alone."""
    part = problem.part
    chosen, num_features = _selection(problem, seed)
    examples = [part.train[number] for number in chosen]
    folds = min(FOLDS, num_groups(part.task, examples) // 2)
    if folds < 2:
        return USUAL_STRENGTH
    losses, scores = np.zeros(len(STRENGTHS)), np.zeros(len(STRENGTHS))
    repeats = 1 if num_features >= MANY_FEATURES else REPEATS
    for repeat in range(repeats):
        fold = fold_numbers(part.task, examples, folds, REPEATS * seed + repeat)
        loss, score = _validate(problem, dict(zip(chosen, fold, strict=True)))
        losses, scores = losses + loss, scores + score / repeats
    near = scores >= scores.max() - NEAR / np.sqrt(len(examples))
    return STRENGTHS[int(np.where(near, losses, np.inf).argmin())]


def _selection(problem: _Problem, seed: int) -> tuple[list[int], int]:
    """Return the numbers of the examples on which a strength is chosen, all that can be learned
    where they are few, and how many features they have."""
    part = problem.part
    features: dict[int, int] = {}
    for item in part.items:
        owner = part.rows[item.start].example
        number = int(problem.offsets[item.stop] - problem.offsets[item.start])
        features[owner] = features.get(owner, 0) + number
    chosen: list[int] = []
    total = 0
    for number in nested_order(part.task, part.train, seed):
        if number in features and total < MAX_SELECTION_FEATURES:
            chosen.append(number)
            total += features[number]
    return sorted(chosen), total


def _validate(
    problem: _Problem, fold: dict[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the summed loss (S,) and the score (S,) of every strength on examples that it was not
    fitted to; ``fold`` is that of every example by its number."""
    part = problem.part
    owners = {n: part.rows[item.start].example for n, item in enumerate(part.items)}
    numbers = [n for n, owner in owners.items() if owner in fold]
    rows = [row for n in numbers for row in part.items[n]]
    outputs = [dict[int, NDArray[np.float32]]() for _ in STRENGTHS]
    losses = np.zeros(len(STRENGTHS))
    for held in sorted(set(fold.values())):
        outside = [n for n in numbers if fold[owners[n]] == held]
        trained = problem.items([n for n in numbers if fold[owners[n]] != held])
        judged, theta = problem.items(outside), None
        judged_rows = [row for n in outside for row in part.items[n]]
        sizes = np.diff(problem.offsets)[judged_rows]
        for number, strength in enumerate(STRENGTHS):
            penalty = problem.width / strength
            theta, _ = _minimise(problem, trained, penalty, SELECTION_TOLERANCE, theta)
            held_outputs = problem.outputs(judged.features, theta)
            losses[number] += float(
                part.answering.loss(held_outputs, judged.sizes, judged.targets)[0]
            )
            parts = np.split(held_outputs.cpu().numpy(), np.cumsum(sizes)[:-1])
            outputs[number] |= dict(zip(judged_rows, parts, strict=True))
    place = {example: number for number, example in enumerate(fold)}
    examples = [part.train[example] for example in fold]
    read = [replace(part.rows[row], example=place[part.rows[row].example]) for row in rows]
    scores = [
        next(iter(part.task.score(examples, predictions).values()))
        for of in outputs
        for predictions in (part.answering.predictions(read, [of[r] for r in rows], examples),)
    ]
    return losses, np.array(scores)
