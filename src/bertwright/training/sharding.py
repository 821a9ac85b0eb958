"""Sharding of a model over processes with FSDP2, for encoders that one device does not hold.

Every process holds some rows of each parameter, with their gradient and optimiser state. The blocks
are gathered one at a time, in the forward and in the backward pass; the embeddings and the heads
are gathered for the whole step.
"""

from functools import cache

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.export import register_dataclass

from bertwright.core.config import Precision
from bertwright.encoder.block import Block
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.models.model import Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.objectives.model_output import Loss
from bertwright.optimisers.sharded_parameters import ShardedParameters
from bertwright.training.process_group import ProcessGroup

COMPUTING_METHODS = ("losses", "logits", "full_logits")
"""Methods of a model, besides ``forward``, that compute with its parameters."""


def shard_model(
    model: Model, precision: Precision, process_group: ProcessGroup
) -> ShardedParameters:
    """Shard a whole model, in place, over the processes; return the parameters to train.

    The model is on the CPU of every process. Its blocks move to the device one at a time.
    """
    _register_losses()
    roles = get_parameter_roles(model)
    initial_values = {name: p.detach().float() for name, p in model.named_parameters()}
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    mesh = init_device_mesh(process_group.device.type, (process_group.world_size,))
    # Gradients are summed in float32, as those of several micro-batches are.
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    for module in (*_separate_blocks(model), model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    for method in COMPUTING_METHODS:
        register_fsdp_forward_method(model, method)
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        # Losses are already divided by the counts of all processes.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)

    def reshard() -> None:
        for part in parts:
            part.reshard()

    return ShardedParameters(model, roles, precision, mesh, initial_values, reshard)


def _separate_blocks(model: Model) -> list[Block]:
    """Return the blocks that can be gathered one at a time.

    These are called equally often in all processes, and share no parameter with other modules.
    """
    owners: dict[nn.Parameter, set[int]] = {}
    blocks: list[Block] = []
    for module in model.modules():
        if isinstance(module, Encoder) and module.layer_stack.calls_every_block:
            blocks += get_blocks(module)
    for block in blocks:
        for parameter in block.parameters():
            owners.setdefault(parameter, set()).add(id(block))
    inside = {id(part) for block in blocks for part in block.modules()}
    outside = {
        parameter
        for module in model.modules()
        if id(module) not in inside
        for parameter in module.parameters(recurse=False)
    }
    return [
        block
        for block in blocks
        if all(len(owners[p]) == 1 and p not in outside for p in block.parameters())
    ]


@cache
def _register_losses() -> None:
    """Let FSDP find the tensors in the losses, before whose backward pass it gathers parameters."""
    register_dataclass(Loss)
