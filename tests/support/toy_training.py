"""A small regression to train in tests: a module, its data, and a job for the loop."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.core.config import Precision
from bertwright.core.rng import RandomPermutation, stream_key, uniform
from bertwright.core.schedules import WarmupSchedule
from bertwright.modules.dropout_rng import DropoutRng, dropout
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.objectives.model_output import Loss
from bertwright.optimisers.adam import AdamWConfig
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import OptimiserConfig
from bertwright.training.checkpoints import CheckpointManager
from bertwright.training.clock import Progress, TrainingClock, every_n_steps
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob, train
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup, process_group
from bertwright.training.step_batch import StepBatch

WIDTH, NUM_EXAMPLES, EXAMPLES_PER_STEP = 6, 100, 16

PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")


class Net(nn.Module):
    """Two linear maps with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first = nn.Linear(WIDTH, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 1)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)

    def forward(self, x: Tensor, rng: DropoutRng | None) -> Tensor:
        x = torch.tanh(self.norm(self.first(x.to(self.first.weight.dtype))))
        return self.last(dropout(x, 0.1, rng, stream=1))[:, 0].float()


def net_roles(net: nn.Module) -> dict[str, ParameterRole]:
    """Return the role of each parameter: weights are matrices, everything else is a bias."""
    return {
        n: ParameterRole("matrix" if p.ndim == 2 else "bias") for n, p in net.named_parameters()
    }


@dataclass(frozen=True)
class Part:
    """A micro-batch: x (B, WIDTH), y (B,), and the index of its first example in the step."""

    x: Tensor
    y: Tensor
    first_example: int


@dataclass
class Toy:
    """A training run with the settings that tests vary."""

    folder: Path | None = None
    steps: int = 20
    phase_fractions: tuple[float, ...] = (0.7, 0.3)
    num_micro_batches: int = 1
    precision: Precision = "float32"
    compiled: bool = False
    optimiser: OptimiserConfig = field(
        default_factory=lambda: AdamWConfig(learning_rate=0.05, weight_decay=0.1)
    )
    process_group: ProcessGroup = SINGLE_PROCESS
    max_grad_norm: float | None = 1.0
    poisoned_step: int | None = None

    def job(self, **changes: Any) -> TrainingJob[Part]:
        """Return the job; ``net`` is the trained module."""
        torch.set_num_threads(1)
        self.net = Net()
        parameters = MasterParameters(self.net, net_roles(self.net), self.precision)
        settings: dict[str, Any] = {
            "parameters": parameters,
            "optimiser": self.optimiser.build(parameters),
            "get_batch": self.batch,
            "compute_losses": self.losses,
            "clock": TrainingClock(self.steps, self.phase_fractions),
            "learning_rate_factor": WarmupSchedule(warmup=0.2).at,
            "loss_weights": lambda progress: {"size": 0.5},
            "gradient_clipping": GradientClipping(self.max_grad_norm),
            "process_group": self.process_group,
            "dump_folder": self.folder or Path(),
        }
        if self.folder is not None:
            settings["checkpoints"] = CheckpointManager(self.folder / "checkpoints")
            settings["checkpoint_trigger"] = every_n_steps(2)
        job = TrainingJob[Part](**{**settings, **changes})
        if self.compiled:
            job.compile()
        return job

    def batch(self, progress: Progress) -> StepBatch[Part]:
        """Return examples in a new order each epoch; half as many in the second phase."""
        count = EXAMPLES_PER_STEP // (1 + progress.phase)
        local = self.process_group.local_slice(count)
        numbers = progress.num_sequences + np.arange(local.start, local.stop)
        epochs, index = np.divmod(numbers, NUM_EXAMPLES)
        for epoch in set(epochs.tolist()):
            within = epochs == epoch
            permutation = RandomPermutation(NUM_EXAMPLES, stream_key(0, "order", epoch))
            index[within] = permutation(index[within])
        x = uniform(stream_key(0, "x"), index[:, None], np.arange(WIDTH)).astype(np.float32)
        if progress.step == self.poisoned_step:
            x[0, 0] = np.nan
        y = x[:, 0] - 2 * x[:, 1] * x[:, 2]
        parts = [
            Part(torch.from_numpy(x[i]), torch.from_numpy(y[i]), local.start + int(i[0]))
            for i in np.array_split(np.arange(len(x)), self.num_micro_batches)
        ]
        return StepBatch(parts, {"fit": float(len(x)), "size": len(x) / 2}, count, len(x) * WIDTH)

    def losses(self, part: Part, progress: Progress) -> dict[str, Loss]:
        """Return the squared error and the squared prediction of every example."""
        rng = DropoutRng.for_step(0, progress.step, part.first_example)
        prediction = self.net(part.x, rng)
        error = prediction - part.y
        return {
            "fit": Loss(error.square().sum(), len(part.y), (error.abs() < 0.1).sum()),
            "size": Loss(prediction.square().sum(), len(part.y) / 2, torch.zeros(())),
        }


def weights(toy: Toy) -> Tensor:
    """Return all parameters of a trained module in one vector."""
    return torch.cat([p.detach().float().flatten() for p in toy.net.parameters()])


def finish(folder: Path, steps: int) -> None:
    """Train from the newest checkpoint to the end, and save the weights."""
    toy = Toy(folder, steps=steps)
    job = toy.job()
    assert job.checkpoints is not None
    start, _ = job.checkpoints.load_newest()
    train(job, start)
    torch.save(weights(toy), folder / "saving.pt")
    os.replace(folder / "saving.pt", folder / "weights.pt")  # atomic, in case of a kill


def trained_together(folder: Path) -> None:
    """Train as one of several processes, in two precisions, and save the weights."""
    with process_group() as group:
        for precision in PRECISIONS:
            toy = Toy(folder / precision, steps=10, process_group=group, precision=precision)
            train(toy.job())
            torch.save(weights(toy), folder / f"{precision}-{group.rank}.pt")
