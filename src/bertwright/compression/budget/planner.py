"""Choose the format and shape that meet a goal and lose the least score.

If a format alone meets the goal, the shape is kept; otherwise the shape with the lowest loss before
training is chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bertwright.compression.budget.candidates import (
    ARTEFACT_FORMATS,
    WEIGHTS_FORMAT,
    ArtefactFormat,
    BudgetCandidate,
    CandidatePool,
)
from bertwright.compression.budget.goal import Goal
from bertwright.compression.budget.shapes import (
    KEPT_FRACTIONS,
    ModelShape,
    full_shape,
    prune_to_shape,
    require_supported_shape,
    sampled_loss,
)
from bertwright.compression.method import CompressionMethod
from bertwright.core.errors import UserError
from bertwright.core.rng import sample
from bertwright.interop.loading import load
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs import OutputType

MAX_EVALUATION_EXAMPLES = 2048
"""Number of examples used to compare formats."""


def evaluation_sample(output_type: OutputType, examples: Examples) -> Examples:
    """Return a sample of the examples; for ranking, it consists of whole groups."""
    groups = [output_type.group(example) for example in examples]
    names = [name for name in dict.fromkeys(groups) if name is not None]
    if not names:
        return sample(examples, MAX_EVALUATION_EXAMPLES)
    sampled = set(sample(names, max(1, MAX_EVALUATION_EXAMPLES * len(names) // len(groups))))
    return [example for example, group in zip(examples, groups, strict=True) if group in sampled]


@dataclass(frozen=True)
class BudgetPlan:
    """The chosen candidate, and its model before training; None if training is not needed."""

    candidate: BudgetCandidate
    model: FineTunedModel | None


class BudgetPlanner:
    """A planner; ``train`` and ``dev`` are examples of the task."""

    def __init__(
        self,
        model: FineTunedModel,
        goal: Goal,
        method: CompressionMethod,
        candidates: CandidatePool,
        train: Examples,
        dev: Examples,
        log: Callable[[str], None],
    ) -> None:
        self._model, self._goal, self._method = model, goal, method
        self._candidates, self._train, self._dev, self._log = candidates, train, dev, log
        self._full_shape = full_shape(model)
        self._lost_points: dict[ArtefactFormat, float] = {WEIGHTS_FORMAT: 0.0}
        self._losses: dict[ModelShape, float] = {}

    def plan(self) -> BudgetPlan:
        """Return the best plan to meet the goal, based on measurements before training.

        Raises UserError if no candidate is small and fast enough.
        """
        candidate = self._candidates.measure(self._full_shape, WEIGHTS_FORMAT)
        if self._meets_goal(candidate) or (candidate := self._best_candidate(self._full_shape)):
            return BudgetPlan(candidate, None)
        candidates = self._largest_candidates()
        if not candidates:
            raise self._infeasible()
        models = {c.shape: prune_to_shape(self._model, c.shape, self._train) for c in candidates}
        for shape, model in models.items():
            self._losses[shape] = sampled_loss(model, self._dev)
            self._log(f"{shape.name}: {self._losses[shape]:.3f} nats before training")
        candidate = min(candidates, key=lambda c: self._losses[c.shape])
        return BudgetPlan(candidate, models[candidate.shape])

    def estimates(self) -> dict[str, Any]:
        """Return the points lost by each format, and each shape's loss before training.

        Losses are in nats per target.
        """
        return {
            "lost_points_by_format": {f.name: lost for f, lost in self._lost_points.items()},
            "loss_by_shape": {shape.name: loss for shape, loss in self._losses.items()},
        }

    @cached_property
    def _allowed_formats(self) -> list[ArtefactFormat]:
        """Return the formats in which the full model loses no more than allowed, best first."""
        score = self._score(WEIGHTS_FORMAT)
        for format in ARTEFACT_FORMATS[1:]:
            if format.prunes_vocabulary and self._goal.max_bytes is None:
                continue
            try:
                lost = 100 * (score - self._score(format))
            except UserError as error:
                self._log(f"{format.name}: left out ({error})")
                continue
            self._lost_points[format] = lost
            self._log(f"{format.name}: {lost:+.2f} points lost")
        allowed = [f for f, lost in self._lost_points.items() if self._goal.allows_loss(lost)]
        return sorted(allowed, key=lambda format: max(self._lost_points[format], 0))

    def _score(self, format: ArtefactFormat) -> float:
        """Return the score of the full model in a format."""
        self._candidates.measure(self._full_shape, format)
        model = load(self._candidates.folder(self._full_shape, format))
        return evaluate(model, evaluation_sample(self._model.task.output_type, self._dev))["score"]

    def _largest_candidates(self) -> list[BudgetCandidate]:
        """Return for each kept fraction the candidate with the most layers that meets the goal.

        A smaller fraction is only included if it allows more layers than a larger one.
        """
        candidates: list[BudgetCandidate] = []
        possible = [shape for shape in self._smaller_shapes() if self._is_possible(shape)]
        if not possible or self._best_candidate(possible[-1]) is None:
            return candidates
        for fraction in KEPT_FRACTIONS:
            min_layers = candidates[-1].shape.num_layers + 1 if candidates else 1
            shapes = [
                shape
                for shape in possible
                if shape.kept_fraction == fraction and shape.num_layers >= min_layers
            ]
            candidates += self._deepest(shapes)
        return candidates

    def _deepest(self, shapes: Sequence[ModelShape]) -> list[BudgetCandidate]:
        """Return the first shape that meets the goal, of shapes by falling depth; or an empty list.

        Uses binary search, because if a shape misses the goal, all deeper shapes do as well.
        """
        best: list[BudgetCandidate] = []
        low, high = 0, len(shapes)
        while low < high:
            middle = (low + high) // 2
            candidate = self._best_candidate(shapes[middle])
            if candidate is None:
                low = middle + 1
            else:
                best, high = [candidate], middle
        return best

    def _smaller_shapes(self) -> list[ModelShape]:
        """Return the shapes smaller than the full one, the smallest last."""
        layers = range(self._full_shape.num_layers, 0, -1)
        shapes = [ModelShape(number, fraction) for fraction in KEPT_FRACTIONS for number in layers]
        return [shape for shape in shapes if shape != self._full_shape]

    def _is_possible(self, shape: ModelShape) -> bool:
        try:
            require_supported_shape(shape, self._model, self._method)
        except UserError:
            return False
        return True

    def _best_candidate(self, shape: ModelShape) -> BudgetCandidate | None:
        """Return a shape in the best format that meets size and latency; None if none does."""
        for format in self._allowed_formats:
            if self._meets_goal(candidate := self._candidates.measure(shape, format)):
                return candidate
        return None

    def _meets_goal(self, candidate: BudgetCandidate) -> bool:
        return self._goal.is_met(candidate.num_bytes, candidate.milliseconds)

    def _infeasible(self) -> UserError:
        measured = self._candidates.measured
        smallest = min(measured, key=lambda c: c.num_bytes)
        facts = [f"the smallest ({smallest.name}) has {smallest.cost}"]
        timed = {c.name: c.milliseconds for c in measured if c.milliseconds is not None}
        if timed:
            fastest = min(timed, key=timed.__getitem__)
            facts.append(f"the fastest ({fastest}) takes {timed[fastest]:.2f} ms")
        facts += [
            f"{format.name} would lose {lost:.2f} points"
            for format, lost in self._lost_points.items()
            if format not in self._allowed_formats
        ]
        return UserError(
            f"no candidate meets the goal: {'; '.join(facts)}: relax the goal, or distil by a "
            f"--method with few bits or into a smaller --student"
        )
