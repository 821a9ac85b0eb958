"""Worker process that trains with bertwright: the training loop, paced by a callback."""

import json
import sys

import torch

from benchmarks.pretraining.workload import VOCAB_SIZE, Workload
from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.runtime.process import configure_process
from bertwright.timing.interleaved import StepTimer
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob, train
from bertwright.training.process_group import ProcessGroup
from bertwright.training.step_batch import StepBatch

NUM_STEPS = 10**9
"""Limit of the training; the timing ends earlier."""


class StepTimerCallback(Callback):
    """A callback that waits before every step for the timer."""

    name = "laps"

    def __init__(self, timer: StepTimer) -> None:
        self._timer = timer

    def before_step(self, progress: Progress) -> None:
        self._timer.before_step()


def training_job(
    workload: Workload, timer: StepTimer, device: torch.device
) -> TrainingJob[DeviceBatch]:
    """Return an endless training of a workload, at the pace of the timer."""
    recipe = workload.recipe()
    objectives = recipe.objectives_of(0)
    model = Model.build(recipe, VOCAB_SIZE).to(device)
    precision = recipe.precision or default_precision(device)
    parameters = MasterParameters(model, get_parameter_roles(model), precision, device)
    batches = [DeviceBatch(batch, device) for batch in workload.batches()]

    def get_batch(progress: Progress) -> StepBatch[DeviceBatch]:
        batch = batches[progress.step % len(batches)]
        counts = {name: targets.total_weight for name, targets in batch.targets.items()}
        return StepBatch([batch], counts, workload.batch_size, batch.num_tokens)

    job = TrainingJob(
        parameters=parameters,
        optimiser=recipe.optimiser.build(parameters),
        get_batch=get_batch,
        compute_losses=lambda batch, progress: model.losses(
            batch,
            objectives,
            DropoutRng.for_step(recipe.seed, progress.step, batch.first_sequence, device),
        ),
        clock=TrainingClock(NUM_STEPS),
        learning_rate_factor=recipe.schedule.at,
        gradient_clipping=GradientClipping(recipe.max_grad_norm),
        process_group=ProcessGroup(device=device),
        callbacks=[StepTimerCallback(timer)],
        compile_model=model.compile_parts,
    )
    job.compile()
    return job


def main() -> None:
    """Run a worker: ``python -m benchmarks.pretraining.bertwright_worker '{"device": ...}'``."""
    configure_process()
    settings = json.loads(sys.argv[1])
    timer = StepTimer.from_standard_streams(settings["device"])
    train(training_job(Workload(**settings["workload"]), timer, torch.device(settings["device"])))


if __name__ == "__main__":
    main()
