"""Our training step as a contestant: the loop itself, which a procedure holds up between turns."""

import json
import sys

import torch

from bertwright.bench.turns import Turns
from bertwright.bench.workload import VOCABULARY_SIZE, Workload
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.roles import roles
from bertwright.machine.process import tune_process
from bertwright.machine.speed import usual_precision
from bertwright.model.model import Model, TensorBatch
from bertwright.optimisers.parameters import MasterParameters
from bertwright.training.batch_source import StepBatch
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place
from bertwright.training.distributed import Processes
from bertwright.training.loop import Job, train
from bertwright.training.procedure import Procedure

FOREVER = 10**9
"""Steps; the turns end before."""


class Laps(Procedure):
    """Waits before each step until it is wanted."""

    name = "laps"

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def before_step(self, place: Place) -> None:
        self._turns.before_step()


def job(workload: Workload, turns: Turns, device: torch.device) -> Job[TensorBatch]:
    """The training of a workload without end, at the pace of the turns."""
    recipe = workload.recipe()
    objectives = recipe.objectives_of(0)
    model = Model.build(recipe, VOCABULARY_SIZE).to(device)
    precision = recipe.precision or usual_precision(device)
    parameters = MasterParameters(model, roles(model), precision, device)
    batches = [TensorBatch(batch, device) for batch in workload.batches()]

    def batch(place: Place) -> StepBatch[TensorBatch]:
        chosen = batches[place.step % len(batches)]
        counts = {name: asked.count for name, asked in chosen.questions.items()}
        return StepBatch([chosen], counts, workload.num_rows, chosen.num_tokens)

    training = Job(
        parameters=parameters,
        update=recipe.optimiser.build(parameters),
        batch=batch,
        losses=lambda chosen, place: model.losses(
            chosen, objectives, Noise.of(recipe.seed, place.step, chosen.first_row, device)
        ),
        clock=Clock(FOREVER),
        rate=recipe.schedule.at,
        clip=Clipping(recipe.clip),
        processes=Processes(device=device),
        procedures=[Laps(turns)],
        compile_model=model.compile_parts,
    )
    training.compile()
    return training


def main() -> None:
    """Be a contestant: ``python -m bertwright.bench.ours '{"device": ..., "workload": {...}}'``."""
    tune_process()
    settings = json.loads(sys.argv[1])
    turns = Turns.over_standard_streams(settings["device"])
    train(job(Workload(**settings["workload"]), turns, torch.device(settings["device"])))


if __name__ == "__main__":
    main()
