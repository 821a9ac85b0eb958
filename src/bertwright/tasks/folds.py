"""How well a task is learned, from data without a part that judges: every example judges once.

The epoch that is kept is chosen on a tenth of what is learned from, so that the part that judges
has decided nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate
from bertwright.tasks.data import TaskData, held_out, order_of
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Watch, unwatched


@dataclass(frozen=True)
class Folded:
    """Every metric, of each fold."""

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

    The folds are disjoint parts of the training examples, drawn by the seed of the settings.
    """
    chosen = dict(settings or {})
    task, examples = data.all_examples()
    if not 2 <= folds <= len(examples) // 2:
        raise UserError(f"--folds {folds}: {len(examples)} examples give 2 to {len(examples) // 2}")
    scores: list[dict[str, float]] = []
    for learned, judged in _folds(examples, folds, int(chosen.get("seed", 0))):
        train, dev = held_out(learned)
        result = finetune(model, task, train=train, dev=dev, watch=watch, **chosen)
        scores.append(evaluate(result.model, judged)["metrics"])
    return Folded(task, scores)


def _folds(examples: Examples, folds: int, seed: int) -> Iterator[tuple[Examples, Examples]]:
    place = order_of(len(examples), seed)
    for fold in range(folds):
        sides: tuple[list[Any], list[Any]] = ([], [])
        for example, position in zip(examples, place, strict=True):
            sides[position % folds == fold].append(example)
        yield sides
