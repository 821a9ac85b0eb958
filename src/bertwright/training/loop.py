"""The loop: everything that is trained is trained here.

A step draws a batch, asks for the losses of its micro-batches, goes backward, sums the gradient
over the processes, clips it and updates the parameters. In between, evaluations and checkpoints are
made when they are due. The loop does not know objectives, tasks or teachers: losses are (sum,
count) pairs by name until they are divided by the global count, in one place.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import torch
from torch import Tensor

from bertwright.errors import Interrupted
from bertwright.objectives.objective import Loss
from bertwright.optimisers.optimiser import Update
from bertwright.optimisers.parameters import MasterParameters
from bertwright.training.batch_source import MicroBatch, StepBatch
from bertwright.training.checkpoints import Checkpoint, Checkpoints
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place, When, never
from bertwright.training.distributed import ALONE, Processes
from bertwright.training.interruption import Interruption, interruptions
from bertwright.training.procedure import Procedure
from bertwright.training.repeatable import repeatable
from bertwright.training.reporting import Reporter
from bertwright.training.step_watch import Pending, StepWatch

TOKENS, HIDDEN, PLACES = "real tokens", "hidden of", "places of"
"""The name under which tokens are counted beside the questions; no question has it."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; ``score`` (lower is better) chooses the best checkpoint, None where
    it cannot be compared with those at the end of the run."""

    score: float | None
    figures: Mapping[str, float]


@dataclass
class Job(Generic[MicroBatch]):
    """Everything the loop needs to train one model.

    Attributes:
        parameters: the flat parameters of the model.
        update: the optimiser over them.
        batch: a step's batch, a pure function of its place.
        losses: of one micro-batch, by question.
        clock: how long the run is.
        rate: the multiplier of the learning rates, as a function of progress.
        weights: of the questions in the total loss; a question that is not named weighs 1.
        clip: what limits the norm of the gradient.
        evaluate: what is found on held-out data; the parameters must stay as they are.
        compile_model: compiles the parts of the model that repay it.
        folder: where the batch of a loss that is not finite is saved.
        remedy: what a user can do about one.
    """

    parameters: MasterParameters
    update: Update
    batch: Callable[[Place], StepBatch[MicroBatch]]
    losses: Callable[[MicroBatch, Place], Mapping[str, Loss]]
    clock: Clock
    rate: Callable[[float], float] = lambda progress: 1.0
    weights: Callable[[Place], Mapping[str, float]] = lambda place: {}
    clip: Clipping = field(default_factory=Clipping)
    processes: Processes = ALONE
    procedures: Sequence[Procedure] = ()
    evaluate: Callable[[Place], Evaluation] | None = None
    evaluate_when: When = never
    checkpoints: Checkpoints | None = None
    checkpoint_when: When = never
    reporter: Reporter = field(default_factory=Reporter)
    compile_model: Callable[[], None] = lambda: None
    folder: Path = Path()
    remedy: str = "lower optimiser.rate or lengthen the warmup, and begin anew in another folder"

    def compile(self) -> None:
        """Compile the step: the model, the optimiser and the norm of the gradient."""
        self.compile_model()
        self.update.compile()
        self.clip.compile()


def weighted_loss(
    losses: Mapping[str, Loss],
    weights: Mapping[str, float],
    counts: Mapping[str, float],
    device: torch.device,
) -> Tensor:
    """Return the loss () whose gradient a micro-batch adds to that of its step: sums of losses,
    weighted, and divided by the counts of the whole step."""
    total = torch.zeros((), device=device)
    for name, loss in losses.items():
        total = total + weights.get(name, 1.0) * loss.sum / (counts[name] or 1.0)
    return total


@dataclass
class State:
    """What a run is at between two steps, beside its tensors."""

    step: int = 0
    rows: int = 0
    tokens: int = 0
    score: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended; ``score`` is that of its last evaluation."""

    steps: int
    tokens: int
    seconds: float
    score: float | None


def train(job: Job[MicroBatch], start: Checkpoint | None = None) -> Outcome:
    """Train until the clock has finished, from the beginning or from a checkpoint.

    Errors: Interrupted after a signal, with a checkpoint written; UserError for a loss that is not
    finite, with the batch saved, or for a full disk.
    """
    run = _Run(job)
    if start is not None:
        run.restore(start)
    safely = interruptions(job.checkpoints is not None)
    with repeatable(job.processes.device), safely as interruption, job.reporter:
        return run.to_the_end(interruption)


class _Run(Generic[MicroBatch]):
    def __init__(self, job: Job[MicroBatch]) -> None:
        self.job = job
        self.state = State()
        self.kept: tuple[int, Path | None] = (0, None)
        self.watch = StepWatch(job.processes, job.reporter, job.folder, job.remedy)

    def to_the_end(self, interruption: Interruption) -> Outcome:
        job, state = self.job, self.state
        job.clock.observe(state.step)
        while not job.clock.finished(state.step):
            place = job.clock.place(state.step, state.rows)
            stop = self.watch.add(self._step(place, interruption))
            job.clock.observe(state.step)
            after = job.clock.place(state.step, state.rows)
            if job.evaluate and job.evaluate_when(place, after):
                self._evaluate(job.evaluate, after)
            if stop:
                number = interruption.signal_number or signal.SIGTERM
                raise Interrupted(number, state.step, self._checkpoint())
            if job.checkpoint_when(place, after):
                self._checkpoint()
        self._checkpoint()
        return Outcome(state.step, state.tokens, job.clock.elapsed(), state.score)

    def _step(self, place: Place, interruption: Interruption) -> Pending:
        job = self.job
        for procedure in job.procedures:
            procedure.before_step(place)
        batch, rate, weights = job.batch(place), job.rate(place.middle), job.weights(place)
        hidden = {f"{HIDDEN} {name}": number for name, (number, _) in batch.hidden.items()}
        places = {f"{PLACES} {name}": number for name, (_, number) in batch.hidden.items()}
        counts = job.processes.sum_named(
            {**batch.counts, TOKENS: batch.num_tokens, **hidden, **places}
        )
        sums = self._gradients(place, batch, counts, weights)
        gradient = job.processes.sum(job.parameters.step_gradient())
        for procedure in job.procedures:
            procedure.after_backward(place)
        norm, factor = job.clip(gradient)
        job.update.step(gradient, rate, factor)
        for procedure in job.procedures:
            procedure.after_update(place)
        sums[-1, 0] = interruption.signal_number > 0
        self.state.step += 1
        self.state.rows += batch.num_rows
        self.state.tokens += round(counts[TOKENS])
        sums = job.processes.sum(sums)
        rates = {
            name: counts[f"{HIDDEN} {name}"] / max(counts[f"{PLACES} {name}"], 1.0)
            for name in batch.hidden
        }
        return Pending(place, batch, rate, weights, sums, norm, self.state.tokens, rates)

    def _gradients(
        self,
        place: Place,
        batch: StepBatch[MicroBatch],
        counts: Mapping[str, float],
        weights: Mapping[str, float],
    ) -> Tensor:
        """The gradient of the total loss into the parameters; returns sums as Pending holds."""
        job = self.job
        names = list(batch.counts)
        several = len(batch.micro_batches) > 1 or job.processes.world > 1
        sums = torch.zeros(len(names) + 1, 3, device=job.processes.device)
        job.parameters.clear_gradient()
        for micro_batch in batch.micro_batches:
            losses = job.losses(micro_batch, place)
            for procedure in job.procedures:
                losses = procedure.after_losses(place, losses)
            for name, loss in losses.items():
                row = sums[names.index(name)]
                row[0] += loss.sum.detach()
                row[1] += loss.correct
                row[2] += loss.count
            weighted_loss(losses, weights, counts, job.processes.device).backward()
            if several:
                job.parameters.accumulate()
        return sums

    def _evaluate(self, evaluate: Callable[[Place], Evaluation], place: Place) -> None:
        job = self.job
        self.watch.look()
        with job.clock.pause():
            found = evaluate(place)
            self.state.score = found.score
            job.reporter.evaluation(place, found.figures)
            for procedure in job.procedures:
                procedure.at_evaluation(place, found.figures)

    def _checkpoint(self) -> Path | None:
        """Write a checkpoint, unless this step has one; the losses before it are looked at."""
        job = self.job
        self.watch.look()
        if job.checkpoints is None or self.state.step == self.kept[0]:
            return self.kept[1]
        procedures = {f"procedure-{p.name}": self._state_of(p) for p in job.procedures}
        if not job.processes.first:
            self.kept = (self.state.step, None)
            return None
        with job.clock.pause():
            groups = {
                "parameters": job.parameters.state(),
                "optimiser": job.update.state(),
                **procedures,
            }
            state = {**vars(self.state), "seconds": job.clock.elapsed()}
            path = job.checkpoints.write(self.state.step, groups, state, self.state.score)
        self.kept = (self.state.step, path)
        return path

    def _state_of(self, procedure: Procedure) -> Mapping[str, Tensor]:
        state = procedure.state()
        return self.job.processes.joined(state) if procedure.parted else state

    def restore(self, start: Checkpoint) -> None:
        """Continue from a checkpoint."""
        job = self.job
        job.parameters.load(start.tensors("parameters"))
        job.update.load(start.tensors("optimiser"))
        for procedure in job.procedures:
            procedure.load(start.tensors(f"procedure-{procedure.name}"))
        saved = dict(start.state)
        job.clock.resume(saved.pop("seconds"))
        self.state = State(**saved)
        self.kept = (start.step, start.path)
