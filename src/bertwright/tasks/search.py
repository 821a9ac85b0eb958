"""Which settings learn a task best: over a published grid, or drawn by Optuna, which gives up early
on what falls behind.

What is chosen among many on one held-out part looks better there than it is. So all trials are
told, not the best alone, and with them what the best of fewer would have been expected to score
(Dodge et al. 2019).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean, median, stdev
from typing import Any, Literal

import numpy as np

from bertwright.errors import MissingExtra, UserError
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.adaptation.adaptation import USUAL_RATE
from bertwright.tasks.data import TaskData
from bertwright.tasks.finetuning import FineTuneResult, finetune_together
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.judging import score_of
from bertwright.tasks.task_training import Watch
from bertwright.training.clock import Clock, Place
from bertwright.training.reporting import Reporter, Reporters

Grid = Literal["bert", "roberta", "electra"]

GRIDS: dict[Grid, dict[str, Sequence[Any]]] = {
    # Devlin et al. 2019, appendix A.3
    "bert": {"batch": (16, 32), "rate": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)},
    # Liu et al. 2019, table 10
    "roberta": {
        "batch": (16, 32),
        "rate": (1e-5, 2e-5, 3e-5),
        "epochs": (10,),
        "warmup": (0.06,),
        "decay": (0.1,),
    },
    # Clark et al. 2020, table 7, whose large encoder has a layer_decay of 0.9
    "electra": {
        "batch": (32,),
        "rate": (3e-5, 5e-5, 1e-4, 1.5e-4),
        "epochs": (3, 10),
        "decay": (0.0,),
        "adaptation": ({"kind": "full", "layer_decay": 0.8},),
    },
}
"""Of encoders 768 wide, all of which is trained; else rates are scaled as the usual one is."""

WIDEST_RATE = 4.0
"""Rates are drawn from the usual one divided by this to the usual one times this."""


@dataclass(frozen=True)
class Trial:
    """Settings, and what every seed scored with them; None where it was given up, and then the best
    that it had ``reached``."""

    settings: Mapping[str, Any]
    scores: Sequence[float] | None
    reached: float | None = None

    @property
    def score(self) -> float:
        """The mean over the seeds."""
        return -np.inf if self.scores is None else fmean(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        if self.scores is None:
            return {**self.settings, "scores": None, "mean": None, "reached": self.reached}
        return {**self.settings, "scores": self.scores, "mean": self.score}


@dataclass
class Searched:
    """All trials, and what the best of them became."""

    trials: list[Trial] = field(default_factory=list[Trial])
    best: FineTuneResult | None = None

    def take(self, settings: Mapping[str, Any], found: FineTuneResult) -> float:
        """Note a trial that came to its end; its mean score."""
        trial = Trial(settings, found.scores)
        if self.best is None or trial.score > max(t.score for t in self.trials):
            self.best = found
        self.trials.append(trial)
        return trial.score

    @property
    def result(self) -> FineTuneResult:
        """That of the best trial."""
        if self.best is None:
            raise UserError("no trial of the search came to its end")
        return self.best

    def as_dict(self) -> dict[str, Any]:
        """What ``finetune --search --json`` prints beside the best.

        A trial that was given up counts with what it had reached: it would have scored that much at
        least, and without it luck would look better than it is.
        """
        whole = [trial.score for trial in self.trials if trial.scores is not None]
        given_up = [trial.reached for trial in self.trials if trial.reached is not None]
        scores = [*whole, *given_up]
        chosen = max(self.trials, key=lambda trial: trial.score)
        return {
            "chosen": dict(chosen.settings),
            "trials": [trial.as_dict() for trial in self.trials],
            "over_trials": {
                "best": max(whole),
                "median": median(scores),
                "mean": fmean(scores),
                "deviation": stdev(scores) if len(scores) > 1 else None,
                "given_up": len(given_up),
            },
            "expected_best": expected_best(scores),
        }


def expected_best(scores: Sequence[float]) -> list[float]:
    """What the best of 1, 2, ... trials drawn from these would score (Dodge et al. 2019)."""
    ordered, number = np.sort(np.asarray(scores)), len(scores)
    below = np.arange(number + 1) / number
    return [float(ordered @ np.diff(below**draws)) for draws in range(1, number + 1)]


def search_grid(
    model: TextModel,
    several: Sequence[TaskData],
    grid: Grid,
    watch: Watch,
    settings: Mapping[str, Any],
) -> Searched:
    """Try everything of a published grid that is not stated otherwise."""
    base, recipe, found = FineTuning.of(settings), model.model.recipe, Searched()
    out = {*settings, *(() if base.schedule is None else ("warmup",))}
    axes = {n: v for n, v in _scaled(GRIDS[grid], base, recipe).items() if n not in out}
    for values in product(*axes.values()):
        own: dict[str, Any] = dict(zip(axes, values, strict=True))
        chosen: dict[str, Any] = {**settings, **own}
        found.take(own, finetune_together(model, several, watch=watch, **chosen))
    return found


def search_drawn(
    model: TextModel,
    several: Sequence[TaskData],
    trials: int,
    watch: Watch,
    settings: Mapping[str, Any],
) -> Searched:
    """Try settings that Optuna's sampler draws (Akiba et al. 2019); a trial that is below the
    median of those before it after as many epochs is given up."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("optuna", "search") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    base, found = FineTuning.of(settings), Searched()
    usual = base.rate_for(model.model.recipe)
    sampler = optuna.samplers.TPESampler(seed=base.seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def one(trial: optuna.Trial) -> float:
        drawn = {
            "rate": lambda: trial.suggest_float(
                "rate", usual / WIDEST_RATE, usual * WIDEST_RATE, log=True
            ),
            "batch": lambda: trial.suggest_categorical("batch", (16, 32)),
            "epochs": lambda: trial.suggest_int("epochs", 2, 5),
            "warmup": lambda: trial.suggest_float("warmup", 0.0, 0.2),
        }
        if base.schedule is not None:
            del drawn["warmup"]
        own: dict[str, Any] = {n: draw() for n, draw in drawn.items() if n not in settings}

        pruning = _Pruning(trial, optuna.TrialPruned)

        def watched(seed: int, clock: Clock) -> Reporter:
            return Reporters(watch(seed, clock), *([pruning] if seed == base.seed else []))

        try:
            chosen: dict[str, Any] = {**settings, **own}
            result = finetune_together(model, several, watch=watched, **chosen)
        except optuna.TrialPruned:
            found.trials.append(Trial(own, None, pruning.best))
            raise
        return found.take(own, result)

    study.optimize(one, n_trials=trials)
    return found


@dataclass
class _Pruning(Reporter):
    """Tells a trial how its epochs score, and ends it where that is too little."""

    trial: Any
    pruned: Callable[[], Exception]
    epoch: int = 0
    best: float = -np.inf

    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        self.epoch += 1
        score = score_of(figures)
        self.best = max(self.best, score)
        self.trial.report(score, self.epoch)
        if self.trial.should_prune():
            raise self.pruned()


def _scaled(
    grid: Mapping[str, Sequence[Any]], base: FineTuning, recipe: Recipe
) -> dict[str, Sequence[Any]]:
    """A grid for this encoder: rates as far from the usual one, and no decay by level where there
    is one level."""
    factor = base.adaptation.usual_rate(recipe) / USUAL_RATE
    axes = {n: tuple(v * factor for v in of) if n == "rate" else of for n, of in grid.items()}
    if recipe.encoder.depth.sharing != "none":
        axes.pop("adaptation", None)
    return axes
