"""The flat buffers of this process's part of a sharded model.

FSDP2 gives each process some rows of every parameter. The buffers have the layout of
:class:`~bertwright.optimisers.master_parameters.MasterParameters` over these rows, so optimisers
that treat every element alike need no change, and their state is sharded with the parameters.
Optimisers that read whole tensors get them in one of two ways:

- Muon: matrix number i of a group of N is gathered by process i of N, which orthogonalises it and
  sends the rows back. So each process computes one Nth of the iterations.
- LAMB, StableAdamW and Adafactor: every process gathers one tensor at a time and keeps its rows.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from math import prod
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from bertwright.core.config import Precision
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.optimisers.master_parameters import (
    ALL_ELEMENTS,
    MasterParameters,
    ParameterSlot,
    group_by_shape,
)
from bertwright.optimisers.tensor_parts import local_rows, whole_tensor


class ShardedParameters(MasterParameters):
    """The float32 parameters that this process updates, as rows of every parameter.

    ``model`` has been sharded over the processes of ``mesh``, in the computing precision, and
    ``initial_values`` are its whole parameters in float32. ``reshard`` frees the parameters that
    the model has gathered; it is called after every update.
    """

    is_sharded = True

    def __init__(
        self,
        model: nn.Module,
        roles: Mapping[str, ParameterRole],
        precision: Precision,
        mesh: DeviceMesh,
        initial_values: Mapping[str, Tensor],
        reshard: Callable[[], None],
    ) -> None:
        self._mesh, self._reshard, self._initial_values = mesh, reshard, initial_values
        self._rank, self._world_size = mesh.get_local_rank(), mesh.size()
        super().__init__(model, roles, precision, mesh.device_type)
        self._initial_values = {}
        self.refresh_compute()

    @property
    def compute_dtype(self) -> torch.dtype:
        return torch.float32 if self.precision == "float32" else torch.bfloat16

    def refresh_compute(self, elements: slice = ALL_ELEMENTS) -> None:
        start, stop, _ = elements.indices(len(self.master))
        for slot in self.slots:
            if start <= slot.start < stop:
                rows = _local(self._parameters[slot.name].detach())
                rows.copy_(self._view(self.master, slot))
        self._reshard()

    def finish_update(self) -> None:
        self.refresh_compute()

    @contextmanager
    def whole_tensors(self, slot: ParameterSlot, *buffers: Tensor) -> Generator[list[Tensor]]:
        rows = self._rows(slot)
        wholes = [whole_tensor(self._saved(self._view(flat, slot), slot)) for flat in buffers]
        yield wholes
        for flat, whole in zip(buffers, wholes, strict=True):
            self._view(flat, slot).copy_(whole[rows])

    def matrix_groups(self, *buffers: Tensor) -> Iterator[tuple[list[Tensor], ...]]:
        matrices = self.trained_slots("matrix")
        for first in range(0, len(matrices), self._world_size):
            slots = matrices[first : first + self._world_size]
            wholes = [self._gather_to_owners(flat, slots) for flat in buffers]
            if self._rank < len(slots):
                num_parts = slots[self._rank].num_parts
                yield from group_by_shape([list(whole.chunk(num_parts)) for whole in wholes])
            for flat, whole in zip(buffers, wholes, strict=True):
                self._return_to_holders(flat, slots, whole)

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _gather_to_owners(self, flat: Tensor, slots: Sequence[ParameterSlot]) -> Tensor:
        """Return the whole tensor of slot number ``rank``; an empty one if there are fewer."""
        sent = torch.cat([self._view(flat, slot).flatten() for slot in slots])
        received_sizes = self._sizes_of_parts(slots)
        received = sent.new_empty(sum(received_sizes))
        dist.all_to_all_single(received, sent, received_sizes, self._sizes_by_owner(slots))
        if self._rank >= len(slots):
            return received
        return received.view(slots[self._rank].whole_shape)

    def _return_to_holders(
        self, flat: Tensor, slots: Sequence[ParameterSlot], whole: Tensor
    ) -> None:
        """Send the rows of the whole tensor of slot number ``rank`` to their processes."""
        sizes = self._sizes_by_owner(slots)
        received = whole.new_empty(sum(sizes))
        dist.all_to_all_single(received, whole.flatten(), sizes, self._sizes_of_parts(slots))
        for slot, (start, stop) in zip(slots, pairwise(accumulate(sizes, initial=0)), strict=False):
            self._view(flat, slot).copy_(received[start:stop].view(slot.shape))

    def _sizes_by_owner(self, slots: Sequence[ParameterSlot]) -> list[int]:
        """Return the number of elements of this process's rows of each owner's tensor."""
        sizes = [prod(slot.shape) for slot in slots]
        return [*sizes, *[0] * (self._world_size - len(slots))]

    def _sizes_of_parts(self, slots: Sequence[ParameterSlot]) -> list[int]:
        """Return the number of elements that each process holds of the tensor owned here."""
        if self._rank >= len(slots):
            return [0] * self._world_size
        num_rows, *columns = slots[self._rank].whole_shape
        parts = (local_rows(num_rows, rank, self._world_size) for rank in range(self._world_size))
        return [(part.stop - part.start) * prod(columns) for part in parts]

    def _rows(self, slot: ParameterSlot) -> slice:
        return local_rows(slot.whole_shape[0], self._rank, self._world_size)

    def _local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        rows = local_rows(shape[0], self._rank, self._world_size)
        return (rows.stop - rows.start, *shape[1:])

    def _initial_value(self, slot: ParameterSlot) -> Tensor:
        return self._initial_values[slot.name][self._rows(slot)]

    def _local_gradient(self, gradient: Tensor) -> Tensor:
        return _local(gradient)

    def _saved(self, view: Tensor, slot: ParameterSlot) -> Tensor:
        shape = torch.Size(slot.whole_shape)
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            view, self._mesh, (Shard(0),), run_check=False, shape=shape, stride=stride
        )

    def _make_compute(self) -> tuple[Tensor, Tensor]:
        # The model computes with the parameters that it gathers; their gradients are summed here.
        device = self.master.device
        return self.master, torch.zeros(self.num_trainable, device=device)

    def _bind(self) -> None:
        self._gradient_views = self.views(self.gradient)

    def _is_copied(self, slot: ParameterSlot) -> bool:
        return slot.start < self.num_trainable


def _local(tensor: Tensor) -> Tensor:
    return cast(DTensor, tensor).to_local()
