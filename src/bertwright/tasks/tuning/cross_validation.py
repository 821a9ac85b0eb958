"""Cross-validation: every training example is held out once and scored.

The best epoch of a fold is selected on a tenth of its training examples, so that its held-out
examples influence nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.statistics import estimate
from bertwright.models.text_model import TextModel
from bertwright.tasks.baselines.comparison import (
    BaselineComparison,
    compare_predictions,
    predict_baselines,
)
from bertwright.tasks.data.splits import hold_out, stratified_folds
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.finetuning.batching.data_warnings import missing_label_warnings
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.finetuning.run import ReporterFactory, no_reporter
from bertwright.tasks.formats.examples import TaskExample
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class CrossValidationResult:
    """The metrics of each fold for all seeds.

    ``comparison`` covers all examples together, held out in the folds of the first seed. The model
    and the baselines of each fold rank the examples of their fold alone.
    """

    task: Task
    fold_scores: list[dict[str, float]]
    comparison: BaselineComparison

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``cross-validate --json``."""
        metric = self.task.metrics[0]
        summary = estimate([fold[metric] for fold in self.fold_scores])
        return {
            "task": self.task.name,
            "metric": metric,
            "scores": [fold[metric] for fold in self.fold_scores],
            "mean": summary.mean,
            "deviation": summary.standard_deviation,
            "interval": summary.interval,
            "metrics": {
                name: estimate([fold[name] for fold in self.fold_scores]).mean
                for name in self.task.metrics
            },
            **self.comparison.as_dict(),
        }


def cross_validate(
    model: TextModel,
    data: TaskData,
    num_folds: int,
    *,
    make_reporter: ReporterFactory = no_reporter,
    log: Callable[[str], None] = lambda line: None,
    settings: Mapping[str, Any] | None = None,
) -> CrossValidationResult:
    """Fine-tune ``num_folds`` times, each time without one fold, and evaluate on that fold.

    Folds are disjoint and stratified by label, and depend on the seed. ``log`` receives warnings
    about labels that a fold lacks.
    """
    settings = dict(settings or {})
    seeds = FineTuningConfig.from_settings(settings).seed_range()
    if data.dev is not None:
        raise UserError("--folds evaluates on parts of --train: leave --dev out")
    task, examples = data.load_training_examples()
    scores: list[dict[str, float]] = []
    held_out_examples: list[TaskExample] = []
    predictions: list[Prediction] = []
    parts: list[slice] = []
    baseline_predictions: dict[str, list[Prediction]] = {}
    num_training_examples: dict[str, int] = {}
    for seed in seeds:
        seed_settings: dict[str, Any] = {**settings, "seed": seed, "seeds": 1}
        folds = stratified_folds(task, examples, num_folds, seed)
        for number, (remaining, held_out) in enumerate(folds):
            name = f"fold {number} of seed {seed}"
            for warning in missing_label_warnings(task, remaining, held_out, name):
                log(warning)
            train, dev = hold_out(task, remaining)
            result = finetune(
                model, task, train=train, dev=dev, make_reporter=make_reporter, **seed_settings
            )
            fold_predictions = result.model.predict(held_out)
            scores.append(task.score(held_out, fold_predictions))
            if seed == seeds[0]:
                (baselines,) = result.baselines
                start = len(held_out_examples)
                held_out_examples += held_out
                parts.append(slice(start, len(held_out_examples)))
                predictions += fold_predictions
                num_training_examples = {b.name: b.num_training_examples for b in baselines}
                by_baseline = predict_baselines(baselines, result.model, held_out)
                for name, values in by_baseline.items():
                    baseline_predictions.setdefault(name, []).extend(values)
    comparison = compare_predictions(
        task, held_out_examples, predictions, baseline_predictions, num_training_examples, parts
    )
    if comparison.verdict:
        log(comparison.verdict)
    return CrossValidationResult(task, scores, comparison)
