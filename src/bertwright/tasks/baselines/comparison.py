"""Comparison of a model with its baselines on the same examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.tasks.baselines.baseline import TaskBaseline
from bertwright.tasks.evaluation.bootstrap import bootstrap_intervals, paired_difference
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class BaselineComparison:
    """The scores of a model and its baselines.

    Attributes:
        intervals: of every metric of the model.
        baselines: of each the name, the number of training examples, and every metric with its
            interval.
        verdict: a sentence where the model is not better than the best of them.
    """

    num_examples: int
    intervals: Mapping[str, list[float] | None]
    baselines: Sequence[Mapping[str, Any]]
    verdict: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data without the verdict, which is printed as a warning."""
        return {
            "examples": self.num_examples,
            "intervals": dict(self.intervals),
            "baselines": [dict(line) for line in self.baselines],
        }


def predict_baselines(
    baselines: Sequence[TaskBaseline], model: FineTunedModel, examples: Examples
) -> dict[str, list[Prediction]]:
    """Return the predictions of each baseline by name; ``model`` computes features."""
    needs_features = any(baseline.needs_features for baseline in baselines)
    features = model.features(examples) if needs_features else None
    return {baseline.name: baseline.predict(examples, features) for baseline in baselines}


def compare_with_baselines(
    model: FineTunedModel,
    examples: Examples,
    predictions: Sequence[Prediction],
    baselines: Sequence[TaskBaseline],
) -> BaselineComparison:
    """Compare the predictions of a model with baselines of its task."""
    num_training_examples = {
        baseline.name: baseline.num_training_examples for baseline in baselines
    }
    by_baseline = predict_baselines(baselines, model, examples)
    return compare_predictions(
        model.task, examples, predictions, by_baseline, num_training_examples
    )


def compare_predictions(
    task: Task,
    examples: Examples,
    predictions: Sequence[Prediction],
    baseline_predictions: Mapping[str, Sequence[Prediction]],
    num_training_examples: Mapping[str, int],
) -> BaselineComparison:
    """Compare the predictions of a model with its baselines' predictions, by name."""
    scores = task.score(examples, predictions)
    lines: list[dict[str, Any]] = []
    for name, values in baseline_predictions.items():
        baseline_scores = task.score(examples, values)
        intervals = bootstrap_intervals(task, examples, values, baseline_scores)
        line: dict[str, Any] = {"baseline": name, "training_examples": num_training_examples[name]}
        for metric, score in baseline_scores.items():
            line |= {metric: score, f"{metric}_interval": intervals[metric]}
        lines.append(line)
    intervals = bootstrap_intervals(task, examples, predictions, scores)
    return BaselineComparison(
        len(examples),
        intervals,
        lines,
        _verdict(task, examples, predictions, baseline_predictions, scores),
    )


def _verdict(
    task: Task,
    examples: Examples,
    predictions: Sequence[Prediction],
    baseline_predictions: Mapping[str, Sequence[Prediction]],
    scores: Mapping[str, float],
) -> str | None:
    metric = task.metrics[0]
    baseline_scores = {
        name: task.score(examples, values)[metric] for name, values in baseline_predictions.items()
    }
    if not baseline_scores:
        return None
    name = max(baseline_scores, key=baseline_scores.__getitem__)
    difference = paired_difference(task, examples, predictions, baseline_predictions[name])
    score, best = scores[metric], baseline_scores[name]
    if score <= best:
        return (
            f"task {task.name}: the model ({metric} {score:.4g}) is not better than the baseline "
            f"{name!r} ({best:.4g}) on {len(examples):,} examples"
        )
    if not difference.low > 0:
        return (
            f"task {task.name}: the model ({metric} {score:.4g}) is ahead of the baseline {name!r} "
            f"({best:.4g}), but not significantly on {len(examples):,} examples (95 % interval "
            f"of the difference {difference.low:.3g} to {difference.high:.3g})"
        )
    return None
