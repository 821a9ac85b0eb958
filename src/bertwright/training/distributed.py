"""The processes that train together: data parallel over torch.distributed, started by torchrun.

One process is the same path with nothing to wait for. Sums are taken in float32 or float64; every
process holds the whole model and takes its part of each batch.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from bertwright.errors import UserError
from bertwright.machine.process import usual_device

Value = TypeVar("Value")


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Processes:
    """This process among its peers."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the tensor over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_named(self, values: Mapping[str, float]) -> dict[str, float]:
        """The sums of named numbers; every process names the same ones."""
        if self.world == 1:
            return dict(values)
        names = sorted(values)
        summed = self.sum(torch.tensor([values[n] for n in names], dtype=torch.float64))
        return dict(zip(names, summed.tolist(), strict=True))

    def share(self, value: Value) -> Value:
        """What the first process says."""
        if self.world == 1:
            return value
        said: list[object] = [value]
        dist.broadcast_object_list(said, device=CPU)
        return cast(Value, said[0])

    def joined(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of all processes end to end, by name, on the first of them; nothing elsewhere."""
        if self.world == 1:
            return dict(named)
        parts: list[dict[str, Tensor]] = [{} for _ in range(self.world)]
        own = {name: tensor.cpu() for name, tensor in named.items()}
        dist.gather_object(own, parts if self.first else None)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def part_of(self, count: int) -> slice:
        """This process's contiguous part of ``count`` rows."""
        start, stop = self.rank * count // self.world, (self.rank + 1) * count // self.world
        return slice(start, stop)


ALONE = Processes()
"""One process, on the CPU."""


@contextmanager
def processes() -> Generator[Processes]:
    """The processes that torchrun started, or this one alone; on CUDA each has a card."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if torch.cuda.is_available():
        _take_card(int(os.environ.get("LOCAL_RANK", "0")))
    device = usual_device()
    if world == 1:
        yield Processes(device=device)
        return
    # Numbers of the host are summed on the host, so that nobody waits for a card.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(rank, world, device)
    finally:
        dist.destroy_process_group()


def _take_card(number: int) -> None:
    """Make a card this process's own."""
    cards = torch.cuda.device_count()
    if number >= cards:
        raise UserError(f"there are {cards} cards for more processes: start one for each card")
    torch.cuda.set_device(number)
