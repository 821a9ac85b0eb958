"""Evaluation after each epoch: scores, the best models, and early stopping."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.outputs import Prediction
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.loop import EvaluationResult

if TYPE_CHECKING:
    from bertwright.tasks.finetuning.run import FineTuningRun

TaskScores = Mapping[str, Mapping[str, float]]
"""Every metric by task."""


@dataclass(frozen=True)
class EpochReport:
    """The results of an epoch with one seed: mean training loss, and all metrics of every task."""

    seed: int
    epoch: int
    loss: float
    scores: TaskScores

    @property
    def score(self) -> float:
        """The selection score: the mean of the main metrics of all tasks."""
        return sum(next(iter(m.values())) for m in self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class BestEpoch:
    """The models of the best epoch by task, its report, and the held-out predictions.

    ``is_final`` is False for intermediate models, such as before pruning is complete.
    """

    models: Sequence[FineTunedModel]
    report: EpochReport
    predictions: Sequence[Sequence[Prediction]]
    is_final: bool = True

    @property
    def score(self) -> float:
        """The selection score."""
        return self.report.score


@dataclass
class Evaluator(Callback):
    """A callback that evaluates each epoch's models, keeps the best, and stops early.

    In a distillation stage without epoch selection, it keeps the last.
    """

    run: "FineTuningRun"
    parameters: MasterParameters
    seed: int
    clock: TrainingClock
    frozen_features: FrozenFeatures | None = None
    best: BestEpoch | None = None
    losses: list[float] = field(default_factory=list[float])
    epoch: int = 0

    def report_step(self, report: StepReport) -> None:
        self.losses.append(report.loss)

    def evaluate(self, progress: Progress) -> EvaluationResult:
        """Evaluate the current parameters."""
        run = self.run
        self.epoch += 1 if run.config.epochs else 0
        models = [self._snapshot(index) for index in range(len(run.encoded_tasks))]
        predictions = [
            model.predict(encoded_task.dev)
            if self.frozen_features is None
            else self.frozen_features.predict(index, model)
            for index, (model, encoded_task) in enumerate(
                zip(models, run.encoded_tasks, strict=True)
            )
        ]
        scores = {
            encoded.task.name: encoded.task.score(encoded.dev, task_predictions)
            for encoded, task_predictions in zip(run.encoded_tasks, predictions, strict=True)
        }
        loss = sum(self.losses) / max(len(self.losses), 1)
        self.losses.clear()
        report = EpochReport(self.seed, self.epoch, loss, scores)
        run.epoch_reports.append(report)
        parametrisation, distillation = run.model.parametrisation, run.distillation_loss
        is_final = parametrisation is None or parametrisation.is_final
        epoch = BestEpoch(models, report, predictions, is_final)
        best = self.best
        if (
            best is None
            or (distillation is not None and not distillation.can_select_epochs)
            or (epoch.is_final, epoch.score) > (best.is_final, best.score)
        ):
            self.best = best = epoch
        patience = run.config.patience
        if patience is not None and self.epoch - best.report.epoch >= patience:
            self.clock.stop_at(progress.step)
        return EvaluationResult(-report.score, flatten_scores(scores))

    def _snapshot(self, task_index: int) -> FineTunedModel:
        run, encoded_task = self.run, self.run.encoded_tasks[task_index]
        model = run.model.build_task_model(task_index, run.full_state(self.parameters))
        if (standardiser := run.model.head_of(task_index).standardiser) is not None:
            standardiser.fold_into(model.head.input_projections)
        encoded_task.output_decoder.fold_into(model.head.classifier)
        return FineTunedModel(
            model, run.source.tokenizer, encoded_task.task, max_length=run.max_length
        )


def selection_score(metrics: Mapping[str, float]) -> float:
    """Return the selection score of an epoch, given :func:`flatten_scores`."""
    first: dict[str, float] = {}
    for name, value in metrics.items():
        first.setdefault(name.rpartition(".")[0], value)
    return sum(first.values()) / len(first)


def flatten_scores(scores: TaskScores) -> dict[str, float]:
    """Return all metrics in one mapping, prefixed by task if there are several."""
    if len(scores) == 1:
        return dict(next(iter(scores.values())))
    return {f"{task}.{name}": v for task, metrics in scores.items() for name, v in metrics.items()}
