"""Linear heads on frozen features, fitted to convergence.

The loss of a linear head is convex, so the result does not depend on a learning rate, a number of
steps or the seed: L-BFGS finds the minimum (Liu and Nocedal 1989). The strength of the L2 penalty
is selected by cross-validation on the training examples. Features are standardised, so that one
strength suits all of them. If there are fewer features than dimensions, the problem is solved in
the span of the features, which contains the same minimum.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.tasks.data.splits import fold_of_examples, num_groups, stratified_order
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask, target_dtype
from bertwright.tasks.heads.head import TaskHead
from bertwright.tasks.heads.kinds import LinearHeadConfig
from bertwright.tasks.heads.standardiser import Standardiser

INVERSE_L2_GRID = tuple(np.logspace(-2, 3, 8).tolist())
"""Candidates for the inverse of the L2 penalty, multiplied by the feature width."""

DEFAULT_INVERSE_L2 = 1.0
"""Value used if there are too few examples for cross-validation."""

NUM_FOLDS, MAX_REPEATS = 5, 3
"""Number of folds, and maximum number of repetitions if examples are few."""

MANY_FEATURES = 1000
"""The cross-validation is not repeated with this many features or more."""

SCORE_TOLERANCE = 0.125
"""Scores closer than this over the square root of the number of examples count as equal."""

MAX_SELECTION_FEATURES = 4096
"""Maximum number of features for the cross-validation."""

MAX_BASIS = 2000
"""Maximum number of features for which a basis is computed: more would take seconds."""

MAX_ITERATIONS = 200
"""Maximum number of L-BFGS iterations."""

TOLERANCE, SELECTION_TOLERANCE = 1e-5, 1e-4
"""Gradient of the mean loss at which to stop: in the final fit, and in the cross-validation."""

BIAS_PENALTY = 1e-6
"""Penalty on the bias that keeps it finite for a label without examples."""


@dataclass(frozen=True)
class LinearFit:
    """The result of fitting a linear head.

    Attributes:
        l2: the penalty; half of it times the sum of squared weights is added to the summed loss.
        loss: the mean loss over the training targets.
    """

    l2: float
    loss: float


def is_linear(head: TaskHead) -> bool:
    """Return whether a head is linear in its features, which makes its loss convex."""
    is_fixed_mix = next(head.mix.parameters(), None) is None
    return (
        isinstance(head.config, LinearHeadConfig)
        and isinstance(head.classifier, nn.Linear)
        and isinstance(head.norm, nn.Identity)
        and is_fixed_mix
    )


@torch.no_grad()
def fit_linear_head(
    head: TaskHead, encoded_task: EncodedTask, features: Sequence[Tensor], seed: int
) -> LinearFit:
    """Fit a head in place to the features (k, W) of every sequence; the seed draws the folds.

    ``head.standardiser`` must be fitted to the features.
    """
    assert isinstance(head.classifier, nn.Linear)
    problem = _HeadFitProblem.build(encoded_task, head, features)
    penalty = problem.width / _choose_inverse_l2(problem, seed)
    items = problem.select_items(range(len(encoded_task.items)))
    theta, loss = _minimise(problem, items, penalty)
    head.classifier.weight.copy_(problem.weight(theta).T)
    head.classifier.bias.copy_(theta[-1])
    return LinearFit(penalty, loss)


@dataclass(frozen=True)
class _ItemFeatures:
    """Training items: features (M, R), number of features per item, and targets."""

    features: Tensor
    output_lengths: Sequence[int]
    targets: Tensor


@dataclass(frozen=True)
class _HeadFitProblem:
    """An encoded task and the features of its head.

    Attributes:
        features: (M, R) features of all sequences, concatenated.
        offsets: (sequences + 1,) start of the features of each sequence.
        standardiser: still to be applied to the features; None if already applied.
        basis: (W, R) orthonormal basis of the standardised features; None if all W dimensions are
            used.
        width: W, the width of a feature.
    """

    encoded_task: EncodedTask
    features: Tensor
    offsets: NDArray[np.int64]
    standardiser: Standardiser | None
    basis: Tensor | None
    width: int

    @staticmethod
    def build(
        encoded_task: EncodedTask, head: TaskHead, features: Sequence[Tensor]
    ) -> "_HeadFitProblem":
        offsets = np.cumsum([0, *map(len, features)])
        mixed = head.mix(torch.cat(list(features)).float())
        assert head.standardiser is not None, "features are standardised"
        standardiser = head.standardiser.to(mixed.device)
        num_features, width = mixed.shape
        if 2 * num_features > width or num_features > MAX_BASIS:
            return _HeadFitProblem(encoded_task, mixed, offsets, standardiser, None, width)
        standardised = standardiser(mixed).double()
        values, vectors = torch.linalg.eigh(standardised @ standardised.T)
        kept = values > 1e-10 * values[-1]
        scale, vectors = values[kept].sqrt(), vectors[:, kept]
        basis = (standardised.T @ (vectors / scale)).float()
        return _HeadFitProblem(encoded_task, (vectors * scale).float(), offsets, None, basis, width)

    def select_items(self, indices: Sequence[int]) -> _ItemFeatures:
        """Return the items with these indices."""
        task, device = self.encoded_task, self.features.device
        bounds = [
            (int(self.offsets[item.start]), int(self.offsets[item.stop]))
            for item in (task.items[index] for index in indices)
        ]
        features = self.features
        if sum(stop - start for start, stop in bounds) < len(features):
            rows = np.concatenate([np.arange(*bound) for bound in bounds])
            features = features[torch.from_numpy(rows).to(device)]
        targets = [target for index in indices for target in task.targets[index]]
        return _ItemFeatures(
            features,
            [stop - start for start, stop in bounds],
            torch.tensor(targets, dtype=target_dtype(task), device=device),
        )

    def outputs(self, features: Tensor, theta: Tensor) -> Tensor:
        """Return outputs (m, K) of features (m, R).

        ``theta`` (R + 1, K) holds the weights, then the bias.
        """
        if self.standardiser is None:
            return features @ theta[:-1] + theta[-1]
        weight = theta[:-1] / self.standardiser.std[:, None]
        return features @ weight + (theta[-1] - self.standardiser.mean @ weight)

    def weight(self, theta: Tensor) -> Tensor:
        """Return the weights (W, K) that apply to standardised features."""
        return theta[:-1] if self.basis is None else self.basis @ theta[:-1]


def _minimise(
    problem: _HeadFitProblem,
    items: _ItemFeatures,
    penalty: float,
    tolerance: float = TOLERANCE,
    start: Tensor | None = None,
) -> tuple[Tensor, float]:
    """Return the parameters (R + 1, K) at the minimum, and the mean loss without the penalty."""
    from scipy.optimize import minimize  # rarely needed

    output_decoder, count = problem.encoded_task.output_decoder, max(len(items.targets), 1)
    zeros = items.features.new_zeros(problem.features.shape[1] + 1, output_decoder.num_outputs)
    shape, initial = zeros.shape, zeros if start is None else start

    def mean_loss(theta: Tensor) -> Tensor:
        outputs = problem.outputs(items.features, theta)
        return output_decoder.loss(outputs, items.output_lengths, items.targets)[0] / count

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        theta = torch.from_numpy(flat).to(zeros).view(shape).requires_grad_()
        with torch.enable_grad():
            l2_term = penalty / count * theta[:-1].square().sum()
            objective = mean_loss(theta) + (l2_term + BIAS_PENALTY * theta[-1].square().sum()) / 2
            (gradient,) = torch.autograd.grad(objective, theta)
        return float(objective.detach()), gradient.flatten().double().cpu().numpy()

    result: Any = minimize(
        value_and_gradient,
        initial.flatten().double().cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS, "gtol": tolerance, "ftol": tolerance / 100},
    )
    theta = torch.from_numpy(result.x).to(zeros).view(shape)
    return theta, float(mean_loss(theta))


def _choose_inverse_l2(problem: _HeadFitProblem, seed: int) -> float:
    """Return the inverse penalty with the lowest validation loss among those with the best scores.

    Scores within a small part of their chance variation count as equal. Selecting by the loss alone
    would not serve metrics that count rare labels.
    """
    encoded_task = problem.encoded_task
    selected, num_features = _selection_examples(problem, seed)
    examples = [encoded_task.train[index] for index in selected]
    num_folds = min(NUM_FOLDS, num_groups(encoded_task.task, examples) // 2)
    if num_folds < 2:
        return DEFAULT_INVERSE_L2
    losses, scores = np.zeros(len(INVERSE_L2_GRID)), np.zeros(len(INVERSE_L2_GRID))
    repeats = 1 if num_features >= MANY_FEATURES else MAX_REPEATS
    for repeat in range(repeats):
        folds = fold_of_examples(
            encoded_task.task, examples, num_folds, MAX_REPEATS * seed + repeat
        )
        loss, score = _validation_scores(problem, dict(zip(selected, folds, strict=True)))
        losses, scores = losses + loss, scores + score / repeats
    near = scores >= scores.max() - SCORE_TOLERANCE / np.sqrt(len(examples))
    return INVERSE_L2_GRID[int(np.where(near, losses, np.inf).argmin())]


def _selection_examples(problem: _HeadFitProblem, seed: int) -> tuple[list[int], int]:
    """Return the indices of examples for the cross-validation, and their number of features."""
    encoded_task = problem.encoded_task
    num_features: Counter[int] = Counter()
    for item in encoded_task.items:
        example_index = encoded_task.sequences[item.start].example_index
        num_features[example_index] += int(problem.offsets[item.stop] - problem.offsets[item.start])
    selected: list[int] = []
    total = 0
    for index in stratified_order(encoded_task.task, encoded_task.train, seed):
        if index in num_features and total < MAX_SELECTION_FEATURES:
            selected.append(index)
            total += num_features[index]
    return sorted(selected), total


def _validation_scores(
    problem: _HeadFitProblem, fold_of_example: dict[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the summed validation loss (S,) and the score (S,) of every strength."""
    task = problem.encoded_task
    examples_of_items = [task.sequences[item.start].example_index for item in task.items]
    items = [n for n, index in enumerate(examples_of_items) if index in fold_of_example]
    outputs = [dict[int, NDArray[np.float32]]() for _ in INVERSE_L2_GRID]
    losses = np.zeros(len(INVERSE_L2_GRID))
    for fold in sorted(set(fold_of_example.values())):
        is_held_out = [fold_of_example[examples_of_items[n]] == fold for n in items]
        held_out_items = [n for n, held_out in zip(items, is_held_out, strict=True) if held_out]
        train = problem.select_items(
            [n for n, held_out in zip(items, is_held_out, strict=True) if not held_out]
        )
        held_out, theta = problem.select_items(held_out_items), None
        indices = [index for n in held_out_items for index in task.items[n]]
        output_lengths = np.diff(problem.offsets)[indices]
        for number, strength in enumerate(INVERSE_L2_GRID):
            penalty = problem.width / strength
            theta, _ = _minimise(problem, train, penalty, SELECTION_TOLERANCE, theta)
            fold_outputs = problem.outputs(held_out.features, theta)
            losses[number] += float(
                task.output_decoder.loss(fold_outputs, held_out.output_lengths, held_out.targets)[0]
            )
            parts = np.split(fold_outputs.cpu().numpy(), np.cumsum(output_lengths)[:-1])
            outputs[number] |= dict(zip(indices, parts, strict=True))
    position = {example: n for n, example in enumerate(fold_of_example)}
    examples = [task.train[example] for example in fold_of_example]
    indices = [index for n in items for index in task.items[n]]
    sequences = [
        replace(sequence, example_index=position[sequence.example_index])
        for sequence in (task.sequences[index] for index in indices)
    ]
    scores: list[float] = []
    for by_sequence in outputs:
        predictions = task.output_decoder.decode(
            sequences, [by_sequence[index] for index in indices], examples
        )
        scores.append(next(iter(task.task.score(examples, predictions).values())))
    return losses, np.array(scores)
