"""Tensors whose rows are divided among processes, for checkpoints.

In a sharded model they are DTensors, which know the whole shape and how to gather it.
"""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from bertwright.core.errors import UserError


def local_rows(num_rows: int, rank: int, world_size: int) -> slice:
    """Return the rows of a tensor that a process holds: equal parts, the last ones shorter."""
    size = -(-num_rows // world_size)
    return slice(min(rank * size, num_rows), min((rank + 1) * size, num_rows))


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor with the rows of all processes; every process must call this."""
    return cast(Any, tensor).full_tensor() if _is_part(tensor) else tensor


def copy_into(views: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy whole tensors into the views of the same names.

    Errors: UserError if names or shapes differ.
    """
    if unmatched := sorted(views.keys() ^ state.keys()):
        raise UserError(
            f"the saved tensors do not match this model: {unmatched[0]!r} is on one side only"
        )
    for name, view in views.items():
        if view.shape != state[name].shape:
            saved, expected = tuple(state[name].shape), tuple(view.shape)
            raise UserError(
                f"the saved tensor {name!r} has shape {saved}, the model's has {expected}"
            )
        if _is_part(view):
            mesh = cast(Any, view).device_mesh
            rows = local_rows(len(view), mesh.get_local_rank(), mesh.size())
            cast(Any, view).to_local().copy_(state[name][rows])
        else:
            view.copy_(state[name])


def _is_part(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")
