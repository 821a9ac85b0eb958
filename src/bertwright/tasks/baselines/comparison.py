"""Comparison of a model with its baselines on the same examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.core.significance import ConfidenceInterval
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
        intervals: interval of every metric of the model.
        baselines: for each baseline its name, its number of training examples, and every metric
            with its interval.
        verdict: a sentence if the model is not better than the best baseline; else None.
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
    parts: Sequence[slice] | None = None,
) -> BaselineComparison:
    """Compare the predictions of a model with its baselines' predictions, by name.

    ``parts`` are the examples that were predicted by different models, such as those of folds.
    """
    scores, metric = task.score(examples, predictions, parts), task.metrics[0]
    baseline_scores = {n: task.score(examples, v, parts) for n, v in baseline_predictions.items()}
    lines: list[dict[str, Any]] = []
    for name, by_metric in baseline_scores.items():
        intervals = bootstrap_intervals(
            task, examples, baseline_predictions[name], by_metric, parts
        )
        line: dict[str, Any] = {"baseline": name, "training_examples": num_training_examples[name]}
        for key, score in by_metric.items():
            line |= {key: score, f"{key}_interval": intervals[key]}
        lines.append(line)
    verdict = None
    if baseline_scores:
        best = max(baseline_scores, key=lambda name: baseline_scores[name][metric])
        difference = paired_difference(
            task, examples, predictions, baseline_predictions[best], parts
        )
        verdict = _verdict(
            f"task {task.name}: the model ({metric} {scores[metric]:.4g})",
            f"the baseline {best!r} ({baseline_scores[best][metric]:.4g})",
            f"on {len(examples):,} examples",
            is_better=scores[metric] > baseline_scores[best][metric],
            difference=difference,
        )
    intervals = bootstrap_intervals(task, examples, predictions, scores, parts)
    return BaselineComparison(len(examples), intervals, lines, verdict)


def _verdict(
    model: str, baseline: str, data: str, *, is_better: bool, difference: ConfidenceInterval
) -> str | None:
    if not is_better:
        return f"{model} is not better than {baseline} {data}"
    if difference.low > 0:
        return None
    return (
        f"{model} is ahead of {baseline}, but not significantly {data} (95 % interval of the "
        f"difference {difference.low:.3g} to {difference.high:.3g})"
    )
