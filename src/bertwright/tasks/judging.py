"""How an epoch ended: the models as they would be saved, their scores, and whether to go on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bertwright.optimisers.parameters import MasterParameters
from bertwright.tasks.answers import Prediction
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.kept_states import KeptStates
from bertwright.training.clock import Clock, Place
from bertwright.training.loop import Evaluation
from bertwright.training.reporting import Reporter, StepReport

if TYPE_CHECKING:
    from bertwright.tasks.task_training import Training

Scores = Mapping[str, Mapping[str, float]]
"""Every metric of every task."""


@dataclass(frozen=True)
class EpochReport:
    """How one epoch of one seed ended: the mean training loss, and every metric of every task."""

    seed: int
    epoch: int
    loss: float
    scores: Scores

    @property
    def score(self) -> float:
        """What chooses the best epoch: the metric that counts first, in the mean of the tasks."""
        return sum(next(iter(of.values())) for of in self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class Best:
    """The models of the best epoch by task, how it ended, and the answers to the held-out part;
    ``done`` unless they are a step on the way to what is wanted."""

    models: Sequence[FineTuned]
    report: EpochReport
    predictions: Sequence[Sequence[Prediction]]
    done: bool = True

    @property
    def score(self) -> float:
        """By which it is the best."""
        return self.report.score


@dataclass
class Judge(Reporter):
    """Evaluates each epoch as the saved model would be, keeps the best, and ends a run that gets no
    better; of a stage that teaches no answers it keeps the last."""

    training: "Training"
    parameters: MasterParameters
    seed: int
    clock: Clock
    kept: KeptStates | None = None
    best: Best | None = None
    losses: list[float] = field(default_factory=list[float])
    epoch: int = 0

    def step(self, report: StepReport) -> None:
        self.losses.append(report.loss)

    def evaluate(self, place: Place) -> Evaluation:
        """The scores of the present parameters."""
        training = self.training
        self.epoch += 1 if training.epochs else 0
        models = [self._model(number) for number in range(len(training.parts))]
        predictions = [
            model.predict(part.dev) if self.kept is None else self.kept.predictions(number, model)
            for number, (model, part) in enumerate(zip(models, training.parts, strict=True))
        ]
        scores = {
            part.task.name: part.task.score(part.dev, said)
            for part, said in zip(training.parts, predictions, strict=True)
        }
        loss = sum(self.losses) / max(len(self.losses), 1)
        self.losses.clear()
        report = EpochReport(self.seed, self.epoch, loss, scores)
        training.epochs_seen.append(report)
        changes = training.net.changes
        found = Best(models, report, predictions, changes is None or changes.done)
        judged = training.teaching is None or training.teaching.judged
        before = self.best
        if before is None or not judged or (found.done, found.score) > (before.done, before.score):
            self.best = before = found
        patience = training.patience
        if patience is not None and self.epoch - before.report.epoch >= patience:
            self.clock.end(place.step)
        return Evaluation(-report.score, figures_of(scores))

    def _model(self, number: int) -> FineTuned:
        training, part = self.training, self.training.parts[number]
        net = training.net.task_model(number, training.state(self.parameters))
        if (standard := training.net.head(number).standard) is not None:
            standard.fold_into(net.head.first_maps)
        part.answering.fold_into(net.head.out)
        return FineTuned(
            net,
            training.source.tokenizer,
            part.task,
            length=training.length,
        )


def score_of(figures: Mapping[str, float]) -> float:
    """The same as that of an epoch, of all metrics in one."""
    first: dict[str, float] = {}
    for name, value in figures.items():
        first.setdefault(name.rpartition(".")[0], value)
    return sum(first.values()) / len(first)


def figures_of(scores: Scores) -> dict[str, float]:
    """All metrics in one, by task where there are several."""
    if len(scores) == 1:
        return dict(next(iter(scores.values())))
    return {f"{task}.{name}": value for task, of in scores.items() for name, value in of.items()}
