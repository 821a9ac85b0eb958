"""A small regression to train in tests: a module, its data, and a job for the loop."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.axes import Precision
from bertwright.encoder.kernels.noise import Noise, dropout
from bertwright.encoder.roles import Role
from bertwright.objectives.objective import Loss
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.optimiser import Optimiser
from bertwright.optimisers.parameters import MasterParameters
from bertwright.randomness import Permutation, key, uniform
from bertwright.schedules import Warmup
from bertwright.training.batch_source import StepBatch
from bertwright.training.checkpoints import Checkpoints
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place, every
from bertwright.training.distributed import ALONE, Processes, processes
from bertwright.training.loop import Job, train

WIDTH, NUM_ROWS, ROWS_PER_STEP = 6, 100, 16

PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")


class Net(nn.Module):
    """Two linear maps with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.enter = nn.Linear(WIDTH, 8)
        self.norm = nn.LayerNorm(8)
        self.leave = nn.Linear(8, 1)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        x = torch.tanh(self.norm(self.enter(x.to(self.enter.weight.dtype))))
        return self.leave(dropout(x, 0.1, noise, site=1))[:, 0].float()


def net_roles(net: nn.Module) -> dict[str, Role]:
    """Weights are matrices, everything else is a bias."""
    return {n: Role("matrix" if p.ndim == 2 else "bias") for n, p in net.named_parameters()}


@dataclass(frozen=True)
class Part:
    """Rows of the toy data: x (B, WIDTH), y (B,), and where the first stands in the step."""

    x: Tensor
    y: Tensor
    first_row: int


@dataclass
class Toy:
    """A run of the toy: what is varied between tests."""

    folder: Path | None = None
    steps: int = 20
    shares: tuple[float, ...] = (0.7, 0.3)
    num_micro_batches: int = 1
    precision: Precision = "float32"
    compiled: bool = False
    optimiser: Optimiser = field(default_factory=lambda: AdamW(rate=0.05, decay=0.1))
    processes: Processes = ALONE
    clip: float | None = 1.0
    poisoned_step: int | None = None

    def job(self, **changes: Any) -> Job[Part]:
        """The job, and ``net`` as it is trained."""
        torch.set_num_threads(1)
        self.net = Net()
        parameters = MasterParameters(self.net, net_roles(self.net), self.precision)
        settings: dict[str, Any] = {
            "parameters": parameters,
            "update": self.optimiser.build(parameters),
            "batch": self.batch,
            "losses": self.losses,
            "clock": Clock(self.steps, self.shares),
            "rate": Warmup(warmup=0.2).at,
            "weights": lambda place: {"size": 0.5},
            "clip": Clipping(self.clip),
            "processes": self.processes,
            "folder": self.folder or Path(),
        }
        if self.folder is not None:
            settings["checkpoints"] = Checkpoints(self.folder / "checkpoints")
            settings["checkpoint_when"] = every(2)
        job = Job[Part](**{**settings, **changes})
        if self.compiled:
            job.compile()
        return job

    def batch(self, place: Place) -> StepBatch[Part]:
        """Rows in a new order each epoch; in the second phase only half as many."""
        count = ROWS_PER_STEP // (1 + place.phase)
        mine = self.processes.part_of(count)
        drawn = place.rows + np.arange(mine.start, mine.stop)
        epoch, index = np.divmod(drawn, NUM_ROWS)
        for each in set(epoch.tolist()):
            within = epoch == each
            index[within] = Permutation(NUM_ROWS, key(0, "order", each))(index[within])
        x = uniform(key(0, "x"), index[:, None], np.arange(WIDTH)).astype(np.float32)
        if place.step == self.poisoned_step:
            x[0, 0] = np.nan
        y = x[:, 0] - 2 * x[:, 1] * x[:, 2]
        pieces = np.array_split(np.arange(len(x)), self.num_micro_batches)
        parts = [
            Part(torch.from_numpy(x[p]), torch.from_numpy(y[p]), mine.start + int(p[0]))
            for p in pieces
        ]
        return StepBatch(parts, {"fit": float(len(x)), "size": len(x) / 2}, count, len(x) * WIDTH)

    def losses(self, part: Part, place: Place) -> dict[str, Loss]:
        """The squared error of every row, and the size of the answer of every row."""
        noise = Noise.of(0, place.step, part.first_row)
        answer = self.net(part.x, noise)
        error = answer - part.y
        return {
            "fit": Loss(error.square().sum(), len(part.y), (error.abs() < 0.1).sum()),
            "size": Loss(answer.square().sum(), len(part.y) / 2, torch.zeros(())),
        }


def weights(toy: Toy) -> Tensor:
    """All parameters of a trained toy in one vector."""
    return torch.cat([p.detach().float().flatten() for p in toy.net.parameters()])


def finish(folder: Path, steps: int) -> None:
    """Train in a folder from its newest checkpoint to the end, and keep the weights."""
    toy = Toy(folder, steps=steps)
    job = toy.job()
    assert job.checkpoints is not None
    start, _ = job.checkpoints.newest()
    train(job, start)
    torch.save(weights(toy), folder / "saving.pt")
    os.replace(folder / "saving.pt", folder / "weights.pt")  # a kill may fall in between


def trained_together(folder: Path) -> None:
    """Train as one of several processes in a folder, in two precisions, and keep the weights."""
    with processes() as mine:
        for precision in PRECISIONS:
            toy = Toy(folder / precision, steps=10, processes=mine, precision=precision)
            train(toy.job())
            torch.save(weights(toy), folder / f"{precision}-{mine.rank}.pt")
