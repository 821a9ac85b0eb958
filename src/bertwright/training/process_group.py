"""Data-parallel training over torch.distributed, started by torchrun.

Every process computes its part of each batch. It holds the whole model, or a part of it if the
model is sharded. A single process runs the same code without communication.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.optimisers.tensor_parts import whole_tensor
from bertwright.runtime.process import default_device

Value = TypeVar("Value")

CPU = torch.device("cpu")


@dataclass(frozen=True)
class ProcessGroup:
    """The rank and device of this process, and communication with the others."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = CPU

    @property
    def is_main(self) -> bool:
        """Return whether this process writes files and logs."""
        return self.rank == 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum the tensor over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_named(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of named numbers over all processes; names must agree."""
        if self.world_size == 1:
            return dict(values)
        names = sorted(values)
        summed = self.all_reduce(torch.tensor([values[n] for n in names], dtype=torch.float64))
        return dict(zip(names, summed.tolist(), strict=True))

    def broadcast(self, value: Value) -> Value:
        """Return the value of the first process."""
        if self.world_size == 1:
            return value
        values: list[object] = [value]
        dist.broadcast_object_list(values, device=CPU)
        return cast(Value, values[0])

    def gather_named(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Concatenate the tensors of all processes on the first one; empty elsewhere."""
        if self.world_size == 1:
            return dict(tensors)
        parts: list[dict[str, Tensor]] = [{} for _ in range(self.world_size)]
        local = {name: tensor.cpu() for name, tensor in tensors.items()}
        dist.gather_object(local, parts if self.is_main else None)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def gather_parts(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the whole tensors on the first process; empty elsewhere.

        Those of a sharded model are gathered one at a time, into the memory of the first process's
        CPU; others are returned as they are.
        """
        if self.world_size == 1:
            return dict(tensors)
        whole: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            gathered = whole_tensor(tensor)
            if self.is_main:
                whole[name] = tensor if gathered is tensor else gathered.cpu()
        return whole

    def local_slice(self, count: int) -> slice:
        """Return this process's contiguous part of ``count`` sequences."""
        return slice(
            self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size
        )


SINGLE_PROCESS = ProcessGroup()
"""One process, on the CPU."""


@contextmanager
def process_group() -> Generator[ProcessGroup]:
    """Join the processes started by torchrun, if any; on CUDA each has its own GPU."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if torch.cuda.is_available():
        _select_gpu(int(os.environ.get("LOCAL_RANK", "0")))
    device = default_device()
    if world == 1:
        yield ProcessGroup(device=device)
        return
    # CPU tensors are summed with gloo, without waiting for the GPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield ProcessGroup(rank, world, device)
    finally:
        dist.destroy_process_group()


def _select_gpu(index: int) -> None:
    num_gpus = torch.cuda.device_count()
    if index >= num_gpus:
        raise UserError(f"more processes than GPUs ({num_gpus}): start one process per GPU")
    torch.cuda.set_device(index)
