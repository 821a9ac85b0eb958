"""Fine-tuning once: one seed, from a pre-trained encoder to the best of its epochs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.axes import Precision
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.roles import roles
from bertwright.encoder.stream import Coordinates
from bertwright.model.reading import padded
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.parameters import MasterParameters, levels_of
from bertwright.schedules import Schedule
from bertwright.tasks.answers import Prediction
from bertwright.tasks.bucketing import BatchPlan, StepRows
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned, flat_places
from bertwright.tasks.heads import begin
from bertwright.tasks.kept_states import KeptStates
from bertwright.tasks.parts import Part, Turns, target_type
from bertwright.tasks.perturbation import Perturbation
from bertwright.tasks.task_model import Adapted
from bertwright.training.batch_source import StepBatch
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place, every
from bertwright.training.distributed import Processes
from bertwright.training.loop import Evaluation, Job, train
from bertwright.training.procedure import Procedure
from bertwright.training.reporting import Reporter, Reporters, StepReport
from bertwright.training.unfreezing import Unfreezing

MICRO_BATCH_PLACES = 8192
"""A step with more places than this is computed in equal parts, which bounds its memory."""

ANSWER = "answer"
"""The name of the one question that is asked."""

Scores = Mapping[str, Mapping[str, float]]
"""Every metric of every task."""


@dataclass(frozen=True)
class TaskBatch:
    """Some items of a part on the device, and what is asked of them.

    Attributes:
        part: whose they are.
        numbers: of the rows, fillers included.
        pieces: (B, L) int64.
        where: (M,) flat places, None where whole rows are asked.
        sizes: how many outputs each row has, fillers included.
        item_sizes: how many outputs each item has, fillers left out.
        targets: (T,) of the items; what fillers give is not looked at.
        first_row, first_answer: where the first of them stand in the step.
        count: what the loop divides the losses of the step by.
    """

    part: int
    numbers: Sequence[int]
    pieces: Tensor
    coordinates: Coordinates
    where: Tensor | None
    sizes: Sequence[int]
    item_sizes: Sequence[int]
    targets: Tensor
    first_row: int
    first_answer: int
    count: float


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
    """The models of the best epoch by task, how it ended, and the answers to the held-out part."""

    models: Sequence[FineTuned]
    report: EpochReport
    predictions: Sequence[Sequence[Prediction]]

    @property
    def score(self) -> float:
        """By which it is the best."""
        return self.report.score


@dataclass(frozen=True)
class Training:
    """What one run needs; ``net`` is filled anew for every seed.

    ``watch`` makes what follows the run of a seed, ``procedures`` act in its steps, ``epochs_seen``
    collects how every epoch ended.
    """

    source: TextModel
    net: Adapted
    parts: Sequence[Part]
    length: int
    epochs: int
    patience: int | None
    optimiser: AdamW
    schedule: Schedule
    clip: float | None
    precision: Precision
    perturbation: Perturbation | None
    folder: Path
    watch: Callable[[int, Clock], Reporter]
    procedures: Sequence[Procedure] = ()
    epochs_seen: list[EpochReport] = field(default_factory=list[EpochReport])

    def run(self, plans: Sequence[BatchPlan], turns: Turns, compiled: bool) -> Best:
        """Train with the seed of the turns, which draws heads, order and dropout."""
        device, seed = self.source.device, turns.seed
        self._begin(seed)
        parameters = MasterParameters(self.net, roles(self.net), self.precision, device)
        clock = Clock(self.epochs * turns.steps_per_epoch)
        kept = None
        if self.net.adaptation.keeps_states:
            kept = KeptStates(self.source, self.net, self.parts, self.precision)
        judge = _Judge(self, parameters, seed, clock, kept)
        if not self.epochs:
            judge.evaluate(clock.place(0))
        else:
            update = self.optimiser.build(parameters, compiled)
            job = Job(
                parameters=parameters,
                update=update,
                procedures=[Unfreezing(parameters, update, self._levels(turns)), *self.procedures],
                batch=_Batches(self, plans, turns).at,
                losses=_Losses(self, seed, kept),
                clock=clock,
                rate=self.schedule.at,
                clip=Clipping(self.clip, compiled),
                processes=Processes(device=device),
                evaluate=judge.evaluate,
                evaluate_when=every(turns.steps_per_epoch),
                reporter=Reporters(judge, self.watch(seed, clock)),
                folder=self.folder,
                remedy="lower the rate or lengthen the warmup, and start again",
            )
            train(job)
        parameters.release()
        assert judge.best is not None, "an epoch ends with an evaluation"
        return judge.best

    def trained_share(self) -> float:
        """How much of the parameters is trained at the end."""
        levels, parameters = levels_of(roles(self.net)), dict(self.net.named_parameters())
        last = self.net.adaptation.trained_levels(max(self.epochs - 1, 0), self.epochs)
        least = 0 if last is None else 1 + max(levels.values()) - last
        trained = sum(
            p.numel() for n, p in parameters.items() if p.requires_grad and levels[n] >= least
        )
        return trained / sum(p.numel() for p in parameters.values())

    def _begin(self, seed: int) -> None:
        """The parameters as they are before the first step."""
        own, known = self.net.encoder, self.source.model.encoder.state_dict()
        own.load_state_dict(known, strict=False)
        self.net.adaptation.begin(own, self.net.recipe, seed)
        if self.net.changes is not None:
            self.net.changes.begin(seed)
        for number, part in enumerate(self.parts):
            begin(self.net.head(number), self.source.model, seed)
            part.answering.begin(self.net.head(number).out, self.source)

    def _levels(self, turns: Turns) -> Callable[[Place], int | None]:
        adaptation, epochs = self.net.adaptation, self.epochs
        return lambda place: adaptation.trained_levels(place.step // turns.steps_per_epoch, epochs)


@dataclass(frozen=True)
class _Losses:
    """The loss of a micro-batch."""

    training: Training
    seed: int
    kept: KeptStates | None

    def __call__(self, batch: TaskBatch, place: Place) -> dict[str, Loss]:
        training, net = self.training, self.training.net
        noise = Noise.of(self.seed, place.step, batch.first_row, training.source.device)

        def run() -> tuple[Tensor, Loss]:
            if self.kept is not None:
                states = self.kept.of(batch.part, batch.numbers)
                behind = net.behind(noise, batch.first_answer)
                outputs = net.head(batch.part).answer(states, batch.sizes, behind)
            else:
                outputs = net(
                    batch.part,
                    batch.pieces,
                    batch.coordinates,
                    batch.where,
                    batch.sizes,
                    noise,
                    batch.first_answer,
                )
            outputs = outputs[: sum(batch.item_sizes)]
            answering = training.parts[batch.part].answering
            loss, right = answering.loss(outputs, batch.item_sizes, batch.targets)
            return outputs, Loss(loss, float(len(batch.targets)), right)

        if training.perturbation is None:
            return {ANSWER: run()[1]}
        real = batch.coordinates.document
        assert real is not None, "batches of tasks say which places are real"
        found = training.perturbation.loss(
            net.encoder.embeddings, run, real >= 0, batch.count, self.seed + place.step
        )
        return {ANSWER: found}


@dataclass(frozen=True)
class _Batches:
    """Steps of items with their targets."""

    training: Training
    plans: Sequence[BatchPlan]
    turns: Turns

    def at(self, place: Place) -> StepBatch[TaskBatch]:
        """The batch of a step."""
        turn = self.turns.at(place.step)
        part = self.training.parts[turn.part]
        step = self.plans[turn.part].at(turn.step)
        items = [part.items[int(number)] for number in step.numbers]
        count = sum(len(part.targets[int(n)]) for n in step.numbers[: step.num_real])
        size = self._items_at_once(part, items, step.length)
        micro_batches: list[TaskBatch] = []
        first_row = first_answer = 0
        for start in range(0, step.num_real, size):
            of = slice(start, start + size)
            num_real = min(size, step.num_real - start)
            micro = self._micro_batch(
                turn.part, step, of, num_real, (first_row, first_answer), float(count)
            )
            micro_batches.append(micro)
            first_row += len(micro.numbers)
            first_answer += sum(micro.item_sizes)
        real = [n for item in items[: step.num_real] for n in item]
        num_tokens = sum(len(part.rows[n].pieces) for n in real)
        return StepBatch(micro_batches, {ANSWER: float(count)}, len(real), num_tokens)

    @staticmethod
    def _items_at_once(part: Part, items: Sequence[range], length: int) -> int:
        """How many items a micro-batch has, so that all of them have as many."""
        if part.task.answer.whole_steps:
            return len(items)
        places = sum(len(item) for item in items) * length
        num_parts = min(-(-places // MICRO_BATCH_PLACES), len(items))
        while len(items) % num_parts:
            num_parts += 1
        return len(items) // num_parts

    def _micro_batch(
        self,
        number: int,
        step: StepRows,
        of: slice,
        num_real: int,
        first: tuple[int, int],
        count: float,
    ) -> TaskBatch:
        training, part = self.training, self.training.parts[number]
        device = training.source.device
        chosen = [int(n) for n in step.numbers[of]]
        numbers = [n for item in chosen for n in part.items[item]]
        rows = [part.rows[n] for n in numbers]
        pieces, coordinates = batched(rows, step.length, training.source)
        places = part.task.answer.reads == "places"
        sizes = [part.answering.num_answers(row) for row in rows]
        item_sizes = [
            sum(part.answering.num_answers(part.rows[n]) for n in part.items[item])
            for item in chosen[:num_real]
        ]
        targets = [target for item in chosen[:num_real] for target in part.targets[item]]
        return TaskBatch(
            number,
            numbers,
            pieces,
            coordinates,
            flat_places(rows, step.length).to(device) if places else None,
            sizes,
            item_sizes,
            torch.tensor(targets, dtype=target_type(part), device=device),
            *first,
            count,
        )


def batched(rows: Sequence[TaskRow], length: int, source: TextModel) -> tuple[Tensor, Coordinates]:
    """Rows as pieces (B, L) with coordinates, which say which places are real even where all are:
    so a step has one shape, for which it is compiled once."""
    every: NDArray[np.int64] = np.arange(len(rows))
    segmented = rows[0].segments is not None
    batch = padded(
        [row.pieces for row in rows],
        [row.segments or [] for row in rows] if segmented else None,
        every,
        length,
        source.tokenizer.specials.pad,
        source.device,
    )
    coordinates = batch.coordinates
    if coordinates.document is None:
        coordinates = replace(coordinates, document=torch.zeros_like(batch.pieces))
    return batch.pieces, coordinates


@dataclass
class _Judge(Reporter):
    """Evaluates each epoch as the saved model would be, keeps the best, and ends a run that gets no
    better."""

    training: Training
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
        if self.best is None or report.score > self.best.score:
            self.best = Best(models, report, predictions)
        patience = training.patience
        if patience is not None and self.epoch - self.best.report.epoch >= patience:
            self.clock.end(place.step)
        return Evaluation(-report.score, figures_of(scores))

    def _model(self, number: int) -> FineTuned:
        training, part = self.training, self.training.parts[number]
        net = training.net.task_model(number, self.parameters.state())
        part.answering.fold_into(net.head.out)
        return FineTuned(
            net,
            training.source.tokenizer,
            part.task,
            length=training.length,
        )


def figures_of(scores: Scores) -> dict[str, float]:
    """All metrics in one, by task where there are several."""
    if len(scores) == 1:
        return dict(next(iter(scores.values())))
    return {f"{task}.{name}": value for task, of in scores.items() for name, value in of.items()}
