"""How well a task is learned, from data without a part that judges: every example judges once.

The epoch that is kept is chosen on a tenth of what is learned from, so that the part that judges
has decided nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate
from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.comparing import Comparison, compare, predict_baselines
from bertwright.tasks.data import TaskData
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import AnyExample
from bertwright.tasks.run_warnings import missing_labels
from bertwright.tasks.splitting import folds_of, held_out
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Watch, unwatched


@dataclass(frozen=True)
class Folded:
    """Every metric, of each fold; with several seeds, of the folds of each. ``comparison`` is of
    all examples together, as the folds of the first seed judge them."""

    task: Task
    folds: list[dict[str, float]]
    comparison: Comparison

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
            **self.comparison.as_dict(),
        }


def cross_validate(
    model: TextModel,
    data: TaskData,
    folds: int,
    *,
    watch: Watch = unwatched,
    say: Callable[[str], None] = lambda line: None,
    settings: Mapping[str, Any] | None = None,
) -> Folded:
    """Fine-tune ``folds`` times, each time on what the others judge.

    The folds are disjoint parts of the training examples, stratified by label, drawn by the seed of
    the settings, and anew for each of several. ``say`` is called with what a fold lacks.
    """
    chosen = dict(settings or {})
    seeds = FineTuning.of(chosen).seeds_in_turn()
    if data.dev is not None:
        raise UserError("--folds judges by parts of --train: leave --dev out")
    task, examples = data.all_examples()
    scores: list[dict[str, float]] = []
    asked: list[AnyExample] = []
    answers: dict[str, list[Prediction]] = {}
    trained_on: dict[str, int] = {}
    for seed in seeds:
        alone: dict[str, Any] = {**chosen, "seed": seed, "seeds": 1}
        for number, (learned, judged) in enumerate(folds_of(task, examples, folds, seed)):
            for sentence in missing_labels(task, learned, judged, f"fold {number} of seed {seed}"):
                say(sentence)
            train, dev = held_out(task, learned)
            result = finetune(model, task, train=train, dev=dev, watch=watch, **alone)
            predictions = result.model.predict(judged)
            scores.append(task.score(judged, predictions))
            if seed == seeds[0]:
                (baselines,) = result.baselines
                asked += judged
                trained_on = {own.name: own.trained_on for own in baselines}
                of = {"": predictions, **predict_baselines(baselines, result.model, judged)}
                for name, own in of.items():
                    answers.setdefault(name, []).extend(own)
    compared = compare(task, asked, answers.pop(""), answers, trained_on)
    if compared.verdict:
        say(compared.verdict)
    return Folded(task, scores, compared)
