"""Fine-tuning once: one seed, from a pre-trained encoder to the best of its epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.axes import Precision
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.roles import roles
from bertwright.encoder.stream import Coordinates
from bertwright.model.reading import padded
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.parameters import MasterParameters
from bertwright.schedules import Warmup
from bertwright.tasks.answers import Answers, NumberAnswers, Prediction
from bertwright.tasks.bucketing import BatchPlan
from bertwright.tasks.encoding import Examples, TaskRow
from bertwright.tasks.fine_tuned import FineTuned, flat_places
from bertwright.tasks.heads import begin
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import TaskModel
from bertwright.training.batch_source import StepBatch
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place, every
from bertwright.training.distributed import Processes
from bertwright.training.loop import Evaluation, Job, train
from bertwright.training.reporting import Reporter, Reporters, StepReport
from bertwright.training.unfreezing import Unfreezing

MICRO_BATCH_PLACES = 8192
"""A step with more places than this is computed in equal parts, which bounds its memory."""

ANSWER = "answer"
"""The name of the one question that is asked."""


@dataclass(frozen=True)
class TaskBatch:
    """Rows on the device, and what is asked of them.

    pieces (B, L) int64; ``where`` (M,) flat places of words, None where whole rows are asked;
    ``targets`` (M,) of the first M answers, the rest are fillers; where the first row and the
    first answer stand in the step.
    """

    pieces: Tensor
    coordinates: Coordinates
    where: Tensor | None
    targets: Tensor
    first_row: int
    first_answer: int


@dataclass(frozen=True)
class EpochReport:
    """How one epoch of one seed ended: the mean training loss, and every metric."""

    seed: int
    epoch: int
    loss: float
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Best:
    """The model of the best epoch, how the epoch ended, and the answers to the held-out part."""

    model: FineTuned
    report: EpochReport
    predictions: Sequence[Prediction]

    @property
    def score(self) -> float:
        """The metric that counts first."""
        return next(iter(self.report.scores.values()))


@dataclass(frozen=True)
class Training:
    """What one run needs; ``net`` is filled anew for every seed.

    ``gradual`` trains the head in the first epoch, one block more in each, all in the last.
    ``watch`` makes what follows the run of a seed; ``epochs_seen`` collects how every epoch ended.
    """

    source: TextModel
    net: TaskModel
    task: Task
    train: Examples
    dev: Examples
    rows: Sequence[TaskRow]
    length: int
    epochs: int
    optimiser: AdamW
    warmup: float
    clip: float | None
    precision: Precision
    answers: Answers
    folder: Path
    watch: Callable[[int, Clock], Reporter]
    gradual: bool = False
    epochs_seen: list[EpochReport] = field(default_factory=list)

    def run(self, plan: BatchPlan, compiled: bool) -> Best:
        """Train with the seed of a plan, which draws the head, the order and the dropout."""
        device, seed = self.source.device, plan.seed
        self.net.encoder.load_state_dict(self.source.model.encoder.state_dict())
        begin(self.net.head, self.net.choice, self.source.model, seed)
        parameters = MasterParameters(self.net, roles(self.net), self.precision, device)
        clock = Clock(self.epochs * plan.steps_per_epoch)
        judge = _Judge(self, parameters, seed)
        update = self.optimiser.build(parameters, compiled)

        def trained(place: Place) -> int | None:
            epoch = place.step // plan.steps_per_epoch
            return epoch + 1 if self.gradual and epoch + 1 < self.epochs else None

        job = Job(
            parameters=parameters,
            update=update,
            procedures=[Unfreezing(parameters, update, trained)],
            batch=_Batches(self, plan).at,
            losses=lambda batch, place: self._losses(batch, place, seed),
            clock=clock,
            rate=Warmup(warmup=self.warmup).at,
            clip=Clipping(self.clip, compiled),
            processes=Processes(device=device),
            evaluate=judge.evaluate,
            evaluate_when=every(plan.steps_per_epoch),
            reporter=Reporters(judge, self.watch(seed, clock)),
            folder=self.folder,
            remedy="lower the rate or lengthen the warmup, and start again",
        )
        train(job)
        parameters.release()
        assert judge.best is not None, "an epoch ends with an evaluation"
        return judge.best

    def _losses(self, batch: TaskBatch, place: Place, seed: int) -> dict[str, Loss]:
        noise = Noise.of(seed, place.step, batch.first_row, self.source.device)
        outputs = self.net(batch.pieces, batch.coordinates, batch.where, noise, batch.first_answer)
        count = len(batch.targets)
        loss, right = self.answers.loss(outputs[:count], batch.targets)
        return {ANSWER: Loss(loss, float(count), right)}


class _Batches:
    """Steps of rows with their targets."""

    def __init__(self, training: Training, plan: BatchPlan) -> None:
        self.training, self.plan = training, plan
        rows = training.rows
        self.targets = [training.answers.targets(r, training.train[r.example]) for r in rows]
        self.pieces = [row.pieces for row in rows]
        segmented = rows[0].segments is not None
        self.segments = [row.segments or [] for row in rows] if segmented else None

    def at(self, place: Place) -> StepBatch[TaskBatch]:
        """The batch of a step."""
        step = self.plan.at(place.step)
        num_parts = -(-len(step.numbers) * step.length // MICRO_BATCH_PLACES)
        while len(step.numbers) % num_parts:
            num_parts += 1
        size = len(step.numbers) // num_parts
        parts: list[TaskBatch] = []
        first_answer = 0
        for first_row in range(0, step.num_real, size):
            numbers = step.numbers[first_row : first_row + size]
            num_real = min(size, step.num_real - first_row)
            part = self._part(numbers, num_real, step.length, first_row, first_answer)
            parts.append(part)
            first_answer += len(part.targets)
        real = step.numbers[: step.num_real]
        num_tokens = sum(len(self.pieces[number]) for number in real)
        return StepBatch(parts, {ANSWER: float(first_answer)}, len(real), num_tokens)

    def _part(
        self, numbers: Any, num_real: int, length: int, first_row: int, first_answer: int
    ) -> TaskBatch:
        device = self.training.source.device
        padding = self.training.source.tokenizer.specials.pad
        batch = padded(self.pieces, self.segments, numbers, length, padding, device)
        coordinates = batch.coordinates
        if coordinates.document is None:
            # With or without padding a step has one shape, for which it is compiled once.
            coordinates = replace(coordinates, document=torch.zeros_like(batch.pieces))
        real = [int(number) for number in numbers[:num_real]]
        rows = [self.training.rows[number] for number in real]
        words = self.training.task.answer == "tags"
        return TaskBatch(
            batch.pieces,
            coordinates,
            flat_places(rows, length).to(device) if words else None,
            torch.tensor([t for number in real for t in self.targets[number]], device=device),
            first_row,
            first_answer,
        )


@dataclass
class _Judge(Reporter):
    """Evaluates each epoch as the saved model would be, and keeps the best."""

    training: Training
    parameters: MasterParameters
    seed: int
    best: Best | None = None
    losses: list[float] = field(default_factory=list)
    epoch: int = 0

    def step(self, report: StepReport) -> None:
        self.losses.append(report.loss)

    def evaluate(self, place: Place) -> Evaluation:
        """The scores of the present parameters."""
        self.epoch += 1
        model = self._model()
        training = self.training
        predictions = model.predict(training.dev)
        scores = training.task.score(
            [training.task.reference(e) for e in training.dev],
            [prediction.answer for prediction in predictions],
        )
        loss = sum(self.losses) / len(self.losses)
        self.losses.clear()
        report = EpochReport(self.seed, self.epoch, loss, scores)
        training.epochs_seen.append(report)
        found = Best(model, report, predictions)
        if self.best is None or found.score > self.best.score:
            self.best = found
        return Evaluation(-found.score, scores)

    def _model(self) -> FineTuned:
        training = self.training
        net = training.net.snapshot(self.parameters.state())
        if isinstance(training.answers, NumberAnswers):
            training.answers.fold_into(net.head.out)
        return FineTuned(net, training.source.tokenizer, training.task, length=training.length)
