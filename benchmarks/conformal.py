"""Coverage and size of prediction sets, over random halves of labelled examples.

The model's outputs are computed once. In every repetition, the thresholds are fitted to one random
half of the examples, and measured on the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key, uniform
from bertwright.core.statistics import estimate
from bertwright.interop.loading import load
from bertwright.tasks.conformal.calibration import LabelledScores, labelled_scores
from bertwright.tasks.conformal.scores import SetMethod
from bertwright.tasks.evaluation.evaluate import task_examples
from bertwright.tasks.fine_tuned_model import FineTunedModel

COLUMNS = {
    "task": "task",
    "method": "sets",
    "promise": "promised",
    "measured": "measured",
    "interval": "95 % interval of the mean",
    "deviation": "deviation of a repetition",
    "size": "classes in a set, or fraction kept",
    "examples": "calibration examples",
}

METHODS: tuple[SetMethod, ...] = ("lac", "aps")

RISKS = (0.02, 0.05)
"""Risks for which a model abstains."""


def measure(
    folder: Path, data: Path, coverages: Sequence[float], repetitions: int
) -> list[dict[str, Any]]:
    """Return the coverage of sets, and the risk of predictions that are kept."""
    model = load(folder)
    if not isinstance(model, FineTunedModel):
        raise UserError(f"{folder} is not fine-tuned for a task: run finetune first")
    examples = task_examples(model.task, data)
    results: list[dict[str, Any]] = []
    is_number = model.task.output_type.kind_name() == "number"
    by_method = {m: labelled_scores(model, examples, m) for m in METHODS[: 1 if is_number else 2]}
    for scores in by_method.values():
        for coverage in coverages:
            lines = [_coverage(*halves, coverage) for halves in _halves(scores, repetitions)]
            name = f"coverage {coverage:g}"
            results.append(_summary(model.task.name, scores.method, name, lines, len(examples)))
    scores = by_method["lac"]
    for risk in RISKS if len(scores.confidences) else ():
        kept = [_risk(*halves, risk) for halves in _halves(scores, repetitions)]
        lines = [line for line in kept if line is not None]
        name = f"risk at most {risk:g} ({len(lines)} of {repetitions} keep it)"
        if lines:
            results.append(_summary(model.task.name, "abstain", name, lines, len(examples)))
    return results


def _halves(
    scores: LabelledScores, repetitions: int
) -> Sequence[tuple[LabelledScores, LabelledScores]]:
    """Return the scores of random halves of the examples, in every repetition."""
    names = np.unique(scores.groups)
    key = stream_key(0, "bench conformal")
    orders = (np.argsort(uniform(key, n, names)) for n in range(repetitions))
    half = len(names) // 2
    return [
        (scores.select(names[order[:half]]), scores.select(names[order[half:]])) for order in orders
    ]


def _coverage(
    calibration: LabelledScores, test: LabelledScores, coverage: float
) -> tuple[float, float]:
    threshold = calibration.calibrate().set_threshold(coverage)
    return test.coverage(threshold), test.mean_size(threshold)


def _risk(
    calibration: LabelledScores, test: LabelledScores, risk: float
) -> tuple[float, float] | None:
    """Return the risk and the fraction of the predictions that are kept; None if none can be."""
    try:
        threshold = calibration.calibrate().abstention_threshold(risk)
    except UserError:
        return None
    is_kept = test.confidences >= threshold
    return float((~test.is_correct[is_kept]).mean()) if is_kept.any() else 0.0, is_kept.mean()


def _summary(
    task: str, method: str, promise: str, lines: Sequence[tuple[float, float]], num_examples: int
) -> dict[str, Any]:
    measured, sizes = (list(column) for column in zip(*lines, strict=True))
    mean = estimate(cast("list[float]", measured))
    return {
        "task": task,
        "method": method,
        "promise": promise,
        "measured": mean.mean,
        "interval": mean.interval,
        "deviation": mean.standard_deviation,
        "size": float(np.mean(sizes)),
        "examples": num_examples // 2,
    }
