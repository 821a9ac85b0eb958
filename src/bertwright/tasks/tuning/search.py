"""Hyperparameter search over a published grid, or with Optuna, which prunes poor trials early.

The best of many trials looks better on its held-out split than it is. Results therefore list all
trials, and the expected best score of fewer trials (Dodge et al. 2019).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean, median, stdev
from typing import Any, Literal

import numpy as np

from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.statistics import expected_best
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.adapters.adaptation import DEFAULT_LEARNING_RATE
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.evaluator import selection_score
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune_tasks
from bertwright.tasks.finetuning.run import ReporterFactory
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress, TrainingClock

GridName = Literal["bert", "roberta", "electra"]

GRIDS: dict[GridName, dict[str, Sequence[Any]]] = {
    # Devlin et al. 2019, appendix A.3
    "bert": {"batch_size": (16, 32), "learning_rate": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)},
    # Liu et al. 2019, table 10
    "roberta": {
        "batch_size": (16, 32),
        "learning_rate": (1e-5, 2e-5, 3e-5),
        "epochs": (10,),
        "warmup": (0.06,),
        "weight_decay": (0.1,),
    },
    # Clark et al. 2020, table 7, whose large encoder has a layer_decay of 0.9
    "electra": {
        "batch_size": (32,),
        "learning_rate": (3e-5, 5e-5, 1e-4, 1.5e-4),
        "epochs": (3, 10),
        "weight_decay": (0.0,),
        "adaptation": ({"kind": "full", "layer_decay": 0.8},),
    },
}
"""Grids for full fine-tuning of encoders of width 768; for others, learning rates are scaled in the
same way as the default."""

LEARNING_RATE_SEARCH_FACTOR = 4.0
"""Largest factor between a searched learning rate and the default one."""


@dataclass(frozen=True)
class SearchTrial:
    """The settings of a trial and its scores by seed.

    A pruned trial has no scores, but keeps the best score that it reached.
    """

    settings: Mapping[str, Any]
    scores: Sequence[float] | None
    best_before_pruning: float | None = None

    @property
    def score(self) -> float:
        """The mean score over the seeds."""
        return -np.inf if self.scores is None else fmean(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        if self.scores is None:
            return {
                **self.settings,
                "scores": None,
                "mean": None,
                "best_before_pruning": self.best_before_pruning,
            }
        return {**self.settings, "scores": self.scores, "mean": self.score}


@dataclass
class SearchResult:
    """All trials, and the result of the best one."""

    trials: list[SearchTrial] = field(default_factory=list[SearchTrial])
    best: FineTuningResult | None = None

    def add(self, settings: Mapping[str, Any], result: FineTuningResult) -> float:
        """Add a completed trial; return its mean score."""
        trial = SearchTrial(settings, result.scores)
        if self.best is None or trial.score > max(t.score for t in self.trials):
            self.best = result
        self.trials.append(trial)
        return trial.score

    @property
    def best_result(self) -> FineTuningResult:
        """The result of the best trial."""
        if self.best is None:
            raise UserError("no trial of the search was completed")
        return self.best

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``search --json``, except for the best result.

        A pruned trial counts with the best score that it reached, a lower bound: without it, luck
        would look better than it is.
        """
        completed = [trial.score for trial in self.trials if trial.scores is not None]
        pruned = [
            trial.best_before_pruning
            for trial in self.trials
            if trial.best_before_pruning is not None
        ]
        scores = [*completed, *pruned]
        best = max(self.trials, key=lambda trial: trial.score)
        return {
            "best_settings": dict(best.settings),
            "trials": [trial.as_dict() for trial in self.trials],
            "summary": {
                "best": max(completed),
                "median": median(scores),
                "mean": fmean(scores),
                "deviation": stdev(scores) if len(scores) > 1 else None,
                "num_pruned": len(pruned),
            },
            "expected_best": expected_best(scores),
        }


def search_grid(
    model: TextModel,
    task_data: Sequence[TaskData],
    grid: GridName,
    make_reporter: ReporterFactory,
    settings: Mapping[str, Any],
) -> SearchResult:
    """Try all combinations of a published grid, except for settings that are configured."""
    config, result = FineTuningConfig.from_settings(settings), SearchResult()
    fixed = {*settings, *(() if config.schedule is None else ("warmup",))}
    scaled = _scale_grid(GRIDS[grid], config, model.model.recipe)
    axes = {name: values for name, values in scaled.items() if name not in fixed}
    for values in product(*axes.values()):
        trial: dict[str, Any] = dict(zip(axes, values, strict=True))
        merged: dict[str, Any] = {**settings, **trial}
        result.add(trial, finetune_tasks(model, task_data, make_reporter=make_reporter, **merged))
    return result


def search_optuna(
    model: TextModel,
    task_data: Sequence[TaskData],
    num_trials: int,
    make_reporter: ReporterFactory,
    settings: Mapping[str, Any],
) -> SearchResult:
    """Try settings sampled by Optuna's TPE sampler (Akiba et al. 2019).

    A trial is pruned if it is below the median of earlier trials at the same epoch.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("optuna", "tune") from error
    # It would log a traceback when a trial is interrupted or fails.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    config, search_result = FineTuningConfig.from_settings(settings), SearchResult()
    default = config.learning_rate_for(model.model.recipe)
    sampler = optuna.samplers.TPESampler(seed=config.seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        samplers = {
            "learning_rate": lambda: trial.suggest_float(
                "learning_rate",
                default / LEARNING_RATE_SEARCH_FACTOR,
                default * LEARNING_RATE_SEARCH_FACTOR,
                log=True,
            ),
            "batch_size": lambda: trial.suggest_categorical("batch_size", (16, 32)),
            "epochs": lambda: trial.suggest_int("epochs", 2, 5),
            "warmup": lambda: trial.suggest_float("warmup", 0.0, 0.2),
        }
        if config.schedule is not None:
            del samplers["warmup"]
        sampled: dict[str, Any] = {n: draw() for n, draw in samplers.items() if n not in settings}
        pruning = _OptunaPruning(trial, optuna.TrialPruned)

        def pruning_reporter(seed: int, clock: TrainingClock) -> Sequence[Callback]:
            return [*make_reporter(seed, clock), *([pruning] if seed == config.seed else [])]

        try:
            merged: dict[str, Any] = {**settings, **sampled}
            result = finetune_tasks(model, task_data, make_reporter=pruning_reporter, **merged)
        except optuna.TrialPruned:
            search_result.trials.append(SearchTrial(sampled, None, pruning.best))
            raise
        return search_result.add(sampled, result)

    study.optimize(objective, n_trials=num_trials)
    return search_result


@dataclass
class _OptunaPruning(Callback):
    """A callback that reports epochs to a trial and stops the run when the trial is pruned."""

    trial: Any
    pruned_error: Callable[[], Exception]
    epoch: int = 0
    best: float = -np.inf

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self.epoch += 1
        score = selection_score(metrics)
        self.best = max(self.best, score)
        self.trial.report(score, self.epoch)
        if self.trial.should_prune():
            raise self.pruned_error()


def _scale_grid(
    grid: Mapping[str, Sequence[Any]], config: FineTuningConfig, recipe: Recipe
) -> dict[str, Sequence[Any]]:
    """Scale the learning rates of a grid; drop layer decay if blocks share parameters."""
    factor = config.adaptation.default_learning_rate(recipe) / DEFAULT_LEARNING_RATE
    axes = dict(grid)
    if "learning_rate" in axes:
        axes["learning_rate"] = tuple(rate * factor for rate in axes["learning_rate"])
    if recipe.encoder.depth.sharing != "none":
        axes.pop("adaptation", None)
    return axes
