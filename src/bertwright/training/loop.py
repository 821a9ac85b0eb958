"""The training loop for pre-training and fine-tuning.

A step draws a batch, computes the losses and gradients of its micro-batches, sums the gradient over
the processes, clips it and updates the parameters. Evaluations and checkpoints run between steps
when due. The loop is independent of objectives, tasks and teachers: losses are (sum, count) pairs
by name, divided by the global count in one function.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import torch
from torch import Tensor

from bertwright.core.errors import TrainingInterrupted
from bertwright.objectives.model_output import Loss
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.runtime.determinism import deterministic_algorithms
from bertwright.training.callbacks.callback import Callback
from bertwright.training.checkpoints import Checkpoint, CheckpointManager, callback_group
from bertwright.training.clock import Progress, TrainingClock, Trigger, never
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup
from bertwright.training.step_batch import MicroBatch, StepBatch
from bertwright.training.step_monitor import PendingStep, StepMonitor
from bertwright.training.stop_signals import Interruption, catch_signals

TOKEN_COUNT, MASKED_COUNT, POSITION_COUNT = "real tokens", "masked tokens of", "positions of"
"""Keys of token counts among the loss counts; no loss has such a name."""


@dataclass(frozen=True)
class EvaluationResult:
    """The result of an evaluation.

    ``score`` (lower is better) selects the best checkpoint; None if it is not comparable with the
    scores at the end of the run.
    """

    score: float | None
    metrics: Mapping[str, float]


@dataclass
class TrainingJob(Generic[MicroBatch]):
    """Everything the loop needs to train one model.

    Attributes:
        parameters: flat parameters of the model.
        optimiser: optimiser of these parameters.
        get_batch: batch of a step, a pure function of the progress.
        compute_losses: losses of a micro-batch by name.
        clock: length of the run.
        learning_rate_factor: multiplier of the learning rates at a fraction of the run.
        loss_weights: weights of the losses in the total; 1 for a missing name.
        evaluate: evaluation on held-out data; must not change the parameters.
        compile_model: compiles the parts of the model worth compiling.
        dump_folder: folder for the batch of a non-finite loss.
        remedy: advice shown with a non-finite loss.
    """

    parameters: MasterParameters
    optimiser: Optimiser
    get_batch: Callable[[Progress], StepBatch[MicroBatch]]
    compute_losses: Callable[[MicroBatch, Progress], Mapping[str, Loss]]
    clock: TrainingClock
    learning_rate_factor: Callable[[float], float] = lambda fraction: 1.0
    loss_weights: Callable[[Progress], Mapping[str, float]] = lambda progress: {}
    gradient_clipping: GradientClipping = field(default_factory=GradientClipping)
    process_group: ProcessGroup = SINGLE_PROCESS
    callbacks: Sequence[Callback] = ()
    evaluate: Callable[[Progress], EvaluationResult] | None = None
    evaluation_trigger: Trigger = never
    checkpoints: CheckpointManager | None = None
    checkpoint_trigger: Trigger = never
    compile_model: Callable[[], None] = lambda: None
    dump_folder: Path = Path()
    remedy: str = (
        "lower optimiser.learning_rate or lengthen the warmup, and start again in a new folder"
    )

    def compile(self) -> None:
        """Compile the model, the optimiser and the gradient norm."""
        self.compile_model()
        self.optimiser.compile()
        self.gradient_clipping.compile()


def weighted_loss(
    losses: Mapping[str, Loss],
    weights: Mapping[str, float],
    loss_counts: Mapping[str, float],
    device: torch.device,
) -> Tensor:
    """Return the loss () of a micro-batch: weighted sums divided by the counts of the step."""
    total = torch.zeros((), device=device)
    for name, loss in losses.items():
        total = total + weights.get(name, 1.0) * loss.sum / (loss_counts[name] or 1.0)
    return total


@dataclass
class TrainingState:
    """The state of a run between two steps, except for tensors."""

    step: int = 0
    num_sequences: int = 0
    num_tokens: int = 0
    score: float | None = None


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run; ``score`` is from its last evaluation."""

    num_steps: int
    num_tokens: int
    seconds: float
    score: float | None


def train(job: TrainingJob[MicroBatch], checkpoint: Checkpoint | None = None) -> TrainingResult:
    """Train until the clock is finished, from the start or from a checkpoint.

    Errors: TrainingInterrupted after a signal, with a checkpoint written; NonFiniteError for a
    non-finite loss, with the batch saved; UserError for a full disk.
    """
    loop = _TrainingLoop(job)
    signals = catch_signals(job.checkpoints is not None)
    with deterministic_algorithms(job.process_group.device), signals as interruption:
        try:
            if checkpoint is not None:
                loop.restore(checkpoint)
            return loop.run(interruption)
        finally:
            for callback in job.callbacks:
                callback.close()


class _TrainingLoop(Generic[MicroBatch]):
    def __init__(self, job: TrainingJob[MicroBatch]) -> None:
        self.job = job
        self.state = TrainingState()
        self.last_checkpoint: tuple[int, Path | None] = (0, None)
        self.step_monitor = StepMonitor(
            job.process_group, job.callbacks, job.dump_folder, job.remedy
        )

    def run(self, interruption: Interruption) -> TrainingResult:
        job, state = self.job, self.state
        job.clock.observe(state.step)
        while not job.clock.is_finished(state.step):
            before = job.clock.progress(state.step, state.num_sequences)
            stop = self.step_monitor.add(self._step(before, interruption))
            job.clock.observe(state.step)
            after = job.clock.progress(state.step, state.num_sequences)
            if job.evaluate and job.evaluation_trigger(before, after):
                self._evaluate(job.evaluate, after)
            if stop:
                number = interruption.signal_number or signal.SIGTERM
                raise TrainingInterrupted(number, state.step, self._save_checkpoint())
            if job.checkpoint_trigger(before, after):
                self._save_checkpoint()
        self._save_checkpoint()
        return TrainingResult(
            state.step, state.num_tokens, job.clock.elapsed_seconds(), state.score
        )

    def _step(self, progress: Progress, interruption: Interruption) -> PendingStep:
        job = self.job
        for callback in job.callbacks:
            callback.before_step(progress)
        batch = job.get_batch(progress)
        learning_rate_factor = job.learning_rate_factor(progress.midpoint)
        weights = job.loss_weights(progress)
        local_counts = {**batch.loss_counts, TOKEN_COUNT: float(batch.num_tokens)}
        for name, (num_masked, num_positions) in batch.masked_counts.items():
            local_counts[f"{MASKED_COUNT} {name}"] = num_masked
            local_counts[f"{POSITION_COUNT} {name}"] = num_positions
        counts = job.process_group.all_reduce_named(local_counts)
        sums = self._backward(progress, batch, counts, weights)
        gradient = job.parameters.step_gradient()
        if job.parameters.is_sharded:  # its parts were summed in the backward pass
            norm, scale = job.gradient_clipping(gradient, job.process_group)
        else:
            norm, scale = job.gradient_clipping(job.process_group.all_reduce(gradient))
        job.optimiser.step(gradient, learning_rate_factor, scale)
        job.parameters.finish_update()
        for callback in job.callbacks:
            callback.after_update(progress)
        sums[-1, 0] = interruption.signal_number > 0
        self.state.step += 1
        self.state.num_sequences += batch.num_sequences
        self.state.num_tokens += round(counts[TOKEN_COUNT])
        sums = job.process_group.all_reduce(sums)
        masking_rates = {
            name: counts[f"{MASKED_COUNT} {name}"] / max(counts[f"{POSITION_COUNT} {name}"], 1.0)
            for name in batch.masked_counts
        }
        return PendingStep(
            progress,
            batch,
            learning_rate_factor,
            weights,
            sums,
            norm,
            self.state.num_tokens,
            masking_rates,
        )

    def _backward(
        self,
        progress: Progress,
        batch: StepBatch[MicroBatch],
        counts: Mapping[str, float],
        weights: Mapping[str, float],
    ) -> Tensor:
        """Compute the gradient of the total loss; return the sums of :class:`PendingStep`."""
        job = self.job
        names = list(batch.loss_counts)
        accumulates = len(batch.micro_batches) > 1 or job.process_group.world_size > 1
        sums = torch.zeros(len(names) + 1, 3, device=job.process_group.device)
        job.parameters.zero_gradient()
        for micro_batch in batch.micro_batches:
            losses = job.compute_losses(micro_batch, progress)
            for name, loss in losses.items():
                row = sums[names.index(name)]
                row[0] += loss.sum.detach()
                row[1] += loss.num_correct
                row[2] += loss.count
            weighted_loss(losses, weights, counts, job.process_group.device).backward()
            if accumulates:
                job.parameters.accumulate_gradient()
        return sums

    def _evaluate(
        self, evaluate: Callable[[Progress], EvaluationResult], progress: Progress
    ) -> None:
        job = self.job
        self.step_monitor.flush()
        with job.clock.pause():
            result = evaluate(progress)
            self.state.score = result.score
            for callback in job.callbacks:
                callback.report_evaluation(progress, result.metrics)

    def _save_checkpoint(self) -> Path | None:
        """Check the pending losses, then write a checkpoint unless this step has one."""
        job = self.job
        self.step_monitor.flush()
        if job.checkpoints is None or self.state.step == self.last_checkpoint[0]:
            return self.last_checkpoint[1]
        for callback in job.callbacks:
            callback.before_checkpoint()
        groups = {
            "parameters": job.process_group.gather_parts(job.parameters.state_dict()),
            "optimiser": job.process_group.gather_parts(job.optimiser.state_dict()),
            **{callback_group(c.name): self._callback_state(c) for c in job.callbacks},
        }
        if not job.process_group.is_main:
            self.last_checkpoint = (self.state.step, None)
            return None
        with job.clock.pause():
            state = {**vars(self.state), "seconds": job.clock.elapsed_seconds()}
            path = job.checkpoints.save(self.state.step, groups, state, self.state.score)
        self.last_checkpoint = (self.state.step, path)
        return path

    def _callback_state(self, callback: Callback) -> Mapping[str, Tensor]:
        state, group = callback.state(), self.job.process_group
        return group.gather_named(state) if callback.is_sharded else group.gather_parts(state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state of a checkpoint."""
        job = self.job
        job.parameters.load_state_dict(checkpoint.load_tensors("parameters"))
        job.optimiser.load_state_dict(checkpoint.load_tensors("optimiser"))
        for callback in job.callbacks:
            callback.load(checkpoint.load_tensors(callback_group(callback.name)))
        state = dict(checkpoint.state)
        job.clock.add_earlier_seconds(state.pop("seconds"))
        self.state = TrainingState(**state)
        self.last_checkpoint = (checkpoint.step, checkpoint.path)
