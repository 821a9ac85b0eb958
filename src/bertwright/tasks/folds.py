"""How well a task is learned, from data without a part that judges: every example judges once.

The epoch that is kept is chosen on a tenth of what is learned from, so that the part that judges
has decided nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate
from bertwright.tasks.data import TaskData, grouped_order, held_out
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Watch, unwatched


@dataclass(frozen=True)
class Folded:
    """Every metric, of each fold; with several seeds, of the folds of each."""

    task: Task
    folds: list[dict[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """What ``finetune --folds --json`` prints."""
        metric = self.task.metrics[0]
        found = estimate([fold[metric] for fold in self.folds])
        return {
            "task": self.task.name,
            "metric": metric,
            "scores": [fold[metric] for fold in self.folds],
            "mean": found.mean,
            "deviation": found.deviation,
            "interval": found.interval,
            "metrics": {
                name: estimate([fold[name] for fold in self.folds]).mean
                for name in self.task.metrics
            },
        }


def cross_validate(
    model: TextModel,
    data: TaskData,
    folds: int,
    *,
    watch: Watch = unwatched,
    settings: Mapping[str, Any] | None = None,
) -> Folded:
    """Fine-tune ``folds`` times, each time on what the others judge.

    The folds are disjoint parts of the training examples, drawn by the seed of the settings, and
    anew for each of several.
    """
    chosen = dict(settings or {})
    seeds = FineTuning.of(chosen).seeds_in_turn()
    if data.dev is not None:
        raise UserError("--folds judges by parts of --train: leave --dev out")
    task, examples = data.all_examples()
    scores: list[dict[str, float]] = []
    for seed in seeds:
        alone: dict[str, Any] = {**chosen, "seed": seed, "seeds": 1}
        for learned, judged in _folds(task, examples, folds, seed):
            train, dev = held_out(task, learned)
            result = finetune(model, task, train=train, dev=dev, watch=watch, **alone)
            scores.append(evaluate(result.model, judged)["metrics"])
    return Folded(task, scores)


def _folds(
    task: Task, examples: Examples, folds: int, seed: int
) -> list[tuple[Examples, Examples]]:
    place, number = grouped_order(task, examples, seed)
    if not 2 <= folds <= number // 2:
        raise UserError(
            f"--folds {folds}: choose from 2 to {number // 2}, half of what is judged by itself"
        )
    return [
        (
            [e for e, p in zip(examples, place, strict=True) if p % folds != fold],
            [e for e, p in zip(examples, place, strict=True) if p % folds == fold],
        )
        for fold in range(folds)
    ]
