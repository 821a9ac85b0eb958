"""A model beside its baselines on the same examples: scores, intervals, and which is better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.baseline import Baseline
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.intervals import intervals, lead
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class Comparison:
    """What a model scores beside its baselines.

    Attributes:
        num_examples: on how many examples.
        intervals: of every metric of the model.
        baselines: a line for each: its name, on how many examples it was trained, and every metric
            with its interval.
        verdict: a sentence where the model is not better than the best of them.
    """

    num_examples: int
    intervals: Mapping[str, list[float] | None]
    baselines: Sequence[Mapping[str, Any]]
    verdict: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; the verdict is left to whoever prints warnings."""
        return {
            "examples": self.num_examples,
            "intervals": dict(self.intervals),
            "baselines": [dict(line) for line in self.baselines],
        }


def predict_baselines(
    baselines: Sequence[Baseline], model: FineTuned, examples: Examples
) -> dict[str, list[Prediction]]:
    """Return the answers of each baseline by name; ``model`` gives the vectors that some read."""
    reading = any(baseline.reads_vectors for baseline in baselines)
    vectors = model.features(examples) if reading else None
    return {baseline.name: baseline.predict(examples, vectors) for baseline in baselines}


def compare_with_baselines(
    model: FineTuned,
    examples: Examples,
    predictions: Sequence[Prediction],
    baselines: Sequence[Baseline],
) -> Comparison:
    """Hold the answers of a model against those of baselines of its task."""
    trained_on = {baseline.name: baseline.trained_on for baseline in baselines}
    by_baseline = predict_baselines(baselines, model, examples)
    return compare(model.task, examples, predictions, by_baseline, trained_on)


def compare(
    task: Task,
    examples: Examples,
    predictions: Sequence[Prediction],
    by_baseline: Mapping[str, Sequence[Prediction]],
    trained_on: Mapping[str, int],
) -> Comparison:
    """Hold the answers of a model against those of its baselines, by name."""
    scores = task.score(examples, predictions)
    lines: list[dict[str, Any]] = []
    for name, answers in by_baseline.items():
        baseline_scores = task.score(examples, answers)
        ends = intervals(task, examples, answers, baseline_scores)
        line: dict[str, Any] = {"baseline": name, "trained_on": trained_on[name]}
        for metric, score in baseline_scores.items():
            line |= {metric: score, f"{metric}_interval": ends[metric]}
        lines.append(line)
    ends = intervals(task, examples, predictions, scores)
    return Comparison(
        len(examples), ends, lines, _verdict(task, examples, predictions, by_baseline, scores)
    )


def _verdict(
    task: Task,
    examples: Examples,
    predictions: Sequence[Prediction],
    by_baseline: Mapping[str, Sequence[Prediction]],
    scores: Mapping[str, float],
) -> str | None:
    metric = task.metrics[0]
    known = {name: task.score(examples, answers)[metric] for name, answers in by_baseline.items()}
    if not known:
        return None
    name = max(known, key=known.__getitem__)
    ahead = lead(task, examples, predictions, by_baseline[name])
    score, best = scores[metric], known[name]
    if score <= best:
        return (
            f"task {task.name}: the model ({metric} {score:.4g}) is not better than the baseline "
            f"{name!r} ({best:.4g}) on {len(examples):,} examples"
        )
    if not ahead.low > 0:
        return (
            f"task {task.name}: the model ({metric} {score:.4g}) is ahead of the baseline {name!r} "
            f"({best:.4g}) by less than {len(examples):,} examples tell from chance (95 % interval "
            f"of the difference {ahead.low:.3g} to {ahead.high:.3g})"
        )
    return None
